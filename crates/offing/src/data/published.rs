//! D4RL's published files: where they are, how long, and what their bytes add up to.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::tasks;

/// Where D4RL publishes its files.
const ROOT: &str = "http://rail.eecs.berkeley.edu/datasets/offline_rl";

/// A file as it was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedFile {
    /// Its directory under D4RL's root.
    directory: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its length in bytes.
    pub bytes: u64,
    /// SHA-256 of its content, in hexadecimal digits.
    pub sha256: &'static str,
}

/// What a file is beside those that D4RL published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Genuineness {
    /// The published file, byte for byte.
    Published(&'static PublishedFile),
    /// It has a published file's name, and other bytes; `shorter` ones may be a fragment of it.
    NotIt {
        /// The file of that name.
        published: &'static PublishedFile,
        /// Whether it is shorter than that.
        shorter: bool,
    },
}

impl PublishedFile {
    /// Its address.
    pub fn address(&self) -> String {
        format!("{ROOT}/{}/{}", self.directory, self.name)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        PUBLISHED.iter()
    }

    /// The id of the dataset: `hopper-medium-v2` for `hopper_medium-v2.hdf5`, `hopper-medium-replay-v0` for `hopper_mixed.hdf5`.
    pub fn id(&self) -> String {
        let stem = self.name.strip_suffix(".hdf5").unwrap_or(self.name);
        let maze = stem.strip_suffix("_fixed").unwrap_or(stem);
        for task in tasks::TASKS {
            if let Some(flavour) = task.flavours.iter().find(|flavour| flavour.d4rl_file == Some(maze)) {
                return format!("{}-{}", task.dataset(flavour), if maze == stem { "v0" } else { "v2" });
            }
        }
        let id = stem.replace('_', "-");
        if self.directory != "gym_mujoco" {
            return id;
        }
        // The first files have no version, and two words of their own.
        let (body, flavour) = id.split_once('-').unwrap_or((&id, ""));
        let body = if body == "walker" { "walker2d" } else { body };
        let flavour = if flavour == "mixed" { "medium-replay" } else { flavour };
        format!("{body}-{flavour}-v0")
    }

    /// The file of a dataset's id.
    pub fn of_id(id: &str) -> Option<&'static Self> {
        Self::all().find(|file| file.id() == id)
    }
}

impl Genuineness {
    /// Compares a file with what D4RL published; `None` where it has neither the name nor the length of any such file. Reads the
    /// content only of files of a published length.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn of(path: &Path) -> Result<Option<Self>> {
        let cannot = |e| Error::io(path, "read", e);
        let meta = std::fs::metadata(path).map_err(cannot)?;
        if !meta.is_file() {
            return Ok(None);
        }
        if PublishedFile::all().any(|file| file.bytes == meta.len()) {
            let (mut hash, mut file) = (Sha256::new(), File::open(path).map_err(cannot)?);
            let mut part = vec![0; 1 << 20];
            loop {
                match file.read(&mut part).map_err(cannot)? {
                    0 => break,
                    read => hash.update(&part[..read]),
                }
            }
            let digest: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
            if let Some(file) = PublishedFile::all().find(|file| file.sha256 == digest) {
                return Ok(Some(Self::Published(file)));
            }
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let found = PublishedFile::all().find(|file| file.name == name);
        Ok(found.map(|published| Self::NotIt { published, shorter: meta.len() < published.bytes }))
    }

    /// In one line.
    pub fn words(&self) -> String {
        match self {
            Self::Published(file) => format!("this is D4RL's published {} (SHA-256 checked)", file.name),
            Self::NotIt { published: PublishedFile { name, bytes, .. }, shorter: true } => {
                format!(
                    "not D4RL's published {name}, which has {bytes} bytes: a fragment of it, or another file"
                )
            }
            Self::NotIt { published: PublishedFile { name, .. }, shorter: false } => {
                format!("not D4RL's published {name}: its bytes differ")
            }
        }
    }
}

const fn file(
    directory: &'static str,
    name: &'static str,
    bytes: u64,
    sha256: &'static str,
) -> PublishedFile {
    PublishedFile { directory, name, bytes, sha256 }
}

#[rustfmt::skip]
const PUBLISHED: &[PublishedFile] = &[
    file("gym_mujoco", "halfcheetah_expert.hdf5", 87_495_442, "1959944d9dbff4a7e7ebcd38436a1fbf1599eda4b7e1f223c6157f7504e126d8"),
    file("gym_mujoco", "halfcheetah_medium.hdf5", 86_943_361, "fcaf602daa063c3031b9c36b777342a1ba669b41eaa6113258ecb9fb789768c3"),
    file("gym_mujoco", "halfcheetah_medium_expert.hdf5", 174_437_297, "c9c90f6b9fca3caa662d6a1f89808171bdb4050bab1db05d24bd85d909a333f1"),
    file("gym_mujoco", "halfcheetah_mixed.hdf5", 9_016_685, "61270f65dcadddae451607eeec68fdae50d0d6ae73fab185d9fc1979cc4f385d"),
    file("gym_mujoco", "halfcheetah_random.hdf5", 88_909_895, "5ba6381942a5110069c78cdaabdeacf1847b970c5b2e72ea5be1756896363fa5"),
    file("gym_mujoco", "hopper_expert.hdf5", 54_061_232, "6fea535033d962eff1427d76d7b2e0e4f57af1d4921f7ef6d917779f2968fd84"),
    file("gym_mujoco", "hopper_medium.hdf5", 54_258_063, "3e6530f00ba134b375dbae56a2120d8e6d6d0afe33d402b0aca3ed3a09fca83b"),
    file("gym_mujoco", "hopper_medium_expert.hdf5", 65_017_623, "3a024c1ecb4ff816963546d4423e2a57d8db85c9e0f4579aee9294e837d3fad0"),
    file("gym_mujoco", "hopper_mixed.hdf5", 10_983_879, "901797e3f21a963b88ced7ab36ed8361ad548b470c38a0855bc265bb4dfb3de9"),
    file("gym_mujoco", "hopper_random.hdf5", 54_351_370, "667e8a78d3460d19d3104826ad3e56abc6b3c07b34e5c179c53865c3dcc6844e"),
    file("gym_mujoco", "walker2d_expert.hdf5", 82_216_946, "6b24651d8643f608bc15b579a2315562935bf06de073a73ec9fb6dfe2b385aa2"),
    file("gym_mujoco", "walker2d_medium.hdf5", 84_756_933, "181a62086f3f287759201a9643e805b9e56438a8532a3915825dbaa6555bd173"),
    file("gym_mujoco", "walker2d_medium_expert.hdf5", 166_972_341, "62b612b2fe593142391b52c1ee04814ea8ba36df5de007969ec50b8b1455f245"),
    file("gym_mujoco", "walker2d_random.hdf5", 82_217_081, "b68931aeb97c9c550f69c2054f2f303bd2a3621385001af82bf0db86fd04b2ed"),
    file("gym_mujoco", "walker_mixed.hdf5", 8_832_937, "d23588d4e07e58cbc276efea183edaa26eede5a44a1c2265adc8cdb6f68a56c7"),
    file("gym_mujoco", "ant_expert.hdf5", 137_721_019, "6829ed2ed8b18bf6cc5b2da725e393adc538868b85373135fa17619a72f8facc"),
    file("gym_mujoco", "ant_medium.hdf5", 137_772_317, "0f456327bbc9c49242c34f8206122ba7b3db97879f8ae540d26e3b918bacd1b8"),
    file("gym_mujoco", "ant_medium_expert.hdf5", 275_497_006, "61a238d8378b5350b3cb7bdefb375f2faf42df95bc1ed28209b028e712b04c88"),
    file("gym_mujoco", "ant_mixed.hdf5", 109_716_945, "4e967dacf82a0927333e5fbd8e4e21883ff6285ebe24084c6eca6534603742a4"),
    file("gym_mujoco", "ant_random.hdf5", 146_281_376, "6288d0e348ba92b7958254025df5f65adef4b1e741bf83cc06178bd2b1500b01"),
    file("gym_mujoco_v1", "halfcheetah_expert-v1.hdf5", 154_077_632, "7e9893114c02d82a9ca2067e3805e4037e06b57bffeac6ac2018459f1490de8d"),
    file("gym_mujoco_v1", "halfcheetah_full_replay-v1.hdf5", 298_849_447, "cdb723414b8498a970e590e76b097a408ef1e00838c297e24215f7ca9f077ded"),
    file("gym_mujoco_v1", "halfcheetah_medium-v1.hdf5", 153_775_441, "2fded5b217390f7992e4d5052961cb9a6e027e8f2e2a29dd4ab234eb4b205130"),
    file("gym_mujoco_v1", "halfcheetah_medium_expert-v1.hdf5", 307_235_270, "89ce3c99ae0b4bdd547e4f7cd0ad318c36b3765b6b83de57a44436c7c1c61cdc"),
    file("gym_mujoco_v1", "halfcheetah_medium_replay-v1.hdf5", 60_486_703, "c38d04f1dabd9969e7a9abff12f69280cb68c8d7174bc21afe4b21e13367b242"),
    file("gym_mujoco_v1", "halfcheetah_random-v1.hdf5", 152_241_884, "4178873b1d3adf4fc45c8de2599a9c28695d7697d9e73c0f3fb6715f93a21c90"),
    file("gym_mujoco_v1", "hopper_expert-v1.hdf5", 97_718_262, "531847c2f131addefa016b3000b409a0bb2afb50cb4ffe82639be8b08f78f837"),
    file("gym_mujoco_v1", "hopper_full_replay-v1.hdf5", 192_222_683, "7f02bb267d455e20b1f0153a189ed9df3bfcb08ea8af6d5aeb58303b2a2d5345"),
    file("gym_mujoco_v1", "hopper_medium-v1.hdf5", 96_497_748, "0e5037ccacd4bc8e8b60b1b853cf574e34fa1a74457892351ee96020b6bf7ace"),
    file("gym_mujoco_v1", "hopper_medium_expert-v1.hdf5", 193_560_687, "bd1ee06588ac7a055fce256cb41aadd67fc6f566ed22a76a47b479439856c5a4"),
    file("gym_mujoco_v1", "hopper_medium_replay-v1.hdf5", 58_349_502, "f807f18983c09c8d9d275e9e82aa0a17aa8649c6e29ebd3e3e3c110f25fcfbfa"),
    file("gym_mujoco_v1", "hopper_random-v1.hdf5", 95_536_011, "1887aaf27bf631787013a59966e06b323ee42594aa9d9974af44301d118ce4d7"),
    file("gym_mujoco_v1", "walker2d_expert-v1.hdf5", 150_010_029, "db9fa2c2777687a964cfec6c3c7e8b1c35bd2d5813ea760439fa957db4fe0e91"),
    file("gym_mujoco_v1", "walker2d_full_replay-v1.hdf5", 292_503_698, "c9f897563e685d90ae70dcb23534b6b96328832f4ee5a043fc253c8918a52403"),
    file("gym_mujoco_v1", "walker2d_medium-v1.hdf5", 151_232_470, "66bc9e18acedae54301256fba5257cbf35a605a84adbf688d1bc67ce62526d53"),
    file("gym_mujoco_v1", "walker2d_medium_expert-v1.hdf5", 300_621_097, "f16bc00b6905f08d096a2b235f1c7ba73389db4f04e968a622c8ad11492fcf2f"),
    file("gym_mujoco_v1", "walker2d_medium_replay-v1.hdf5", 88_471_563, "dd22a299855eb7327944f946053c060ff37c0384e3b1be8bc90f27a2535ff380"),
    file("gym_mujoco_v1", "walker2d_random-v1.hdf5", 138_787_195, "82135416af2ce85527ad513e2c055d07e4e40f6288b19b24921d52daf6c86232"),
    file("gym_mujoco_v1", "ant_expert-v1.hdf5", 231_441_892, "006b2620534f24eca76234577ca694504639baab05466fb2945d2b7edd6b28bc"),
    file("gym_mujoco_v1", "ant_full_replay-v1.hdf5", 458_829_203, "8be5a4f2c38e1fe30780b7b136ed2250a4ba11aef4d099b5df4aa02512ca4593"),
    file("gym_mujoco_v1", "ant_medium-v1.hdf5", 233_194_763, "f2d35a447767b3601b5809d7eb175f4ebefa531d5a22482653836e7cc06e20a3"),
    file("gym_mujoco_v1", "ant_medium_expert-v1.hdf5", 463_733_878, "ece90130bf12d34fa881ae315ad4a201a18b127f990fc84772ffd23e684fd359"),
    file("gym_mujoco_v1", "ant_medium_replay-v1.hdf5", 138_469_125, "3acab13873f7c51b8fb7ab1f3024ff0deffa0f0b49db31805b1391ced79b922d"),
    file("gym_mujoco_v1", "ant_random-v1.hdf5", 236_118_204, "ed384d3a8cc664bbb7bcabd94a8d07adeb0f7e5ac7f8e6344279766083f64642"),
    file("gym_mujoco_v2", "halfcheetah_expert-v2.hdf5", 237_464_597, "d9fe53bb994eb1e20a99b4fa3412cd76a1bb7966a7ff55e0fcbdd6081bd2965f"),
    file("gym_mujoco_v2", "halfcheetah_full_replay-v2.hdf5", 291_381_762, "27fdf7ea86e5a2cbd24d611ae9e703c86ec2e8e52823abc69dd9af6afb3a36c0"),
    file("gym_mujoco_v2", "halfcheetah_medium-v2.hdf5", 237_727_262, "41324e8487a9556d8cfa4538827f8937f4d63dae3030825ebc9f3a726ed08ca0"),
    file("gym_mujoco_v2", "halfcheetah_medium_expert-v2.hdf5", 474_567_252, "015db75dae5bbe8e94029b71fa0bafc2073365df0c94744e71031189f3f79c06"),
    file("gym_mujoco_v2", "halfcheetah_medium_replay-v2.hdf5", 59_448_533, "48d494a4770c11f48260736dec090b78bdca8375647ed4d24bfa5b6610c7f683"),
    file("gym_mujoco_v2", "halfcheetah_random-v2.hdf5", 237_338_037, "25407aef85b5d16c0f36b4149341edb4acc6a9e88c1db529b2de19e7464874ba"),
    file("gym_mujoco_v2", "hopper_expert-v2.hdf5", 152_427_435, "01aa219a5f8eea5e639eccdc636ec2bf40e317159a95cf4bf6e985f16909941b"),
    file("gym_mujoco_v2", "hopper_full_replay-v2.hdf5", 187_998_921, "56baf95963c51c1e964049a974566c50ba80f289390565523e60c0ba83e0982e"),
    file("gym_mujoco_v2", "hopper_medium-v2.hdf5", 152_756_557, "5bdf1bc4a713c82941de44633df669b36c89850b652a25985166796d25cf71a0"),
    file("gym_mujoco_v2", "hopper_medium_expert-v2.hdf5", 304_537_315, "9d51ad87f8c905be3880d84c6140bcdb7fbf39a19e046a237f238ba34fec9e26"),
    file("gym_mujoco_v2", "hopper_medium_replay-v2.hdf5", 75_854_457, "e121c5f7c9857a307baa9edc6a2c3b48e85fedb9ac316ecddd0f48ca7ef4e39b"),
    file("gym_mujoco_v2", "hopper_random-v2.hdf5", 152_525_345, "63103ef7059db4c0819bd054f4e83ff339030b50bcdb46bdbe50385f234b5054"),
    file("gym_mujoco_v2", "walker2d_expert-v2.hdf5", 230_567_195, "2985dc3d436a8baa10e8f43f946fe1d7c6337a4e4fbc65def70618093b18c59a"),
    file("gym_mujoco_v2", "walker2d_full_replay-v2.hdf5", 285_115_514, "f2720f9d27b2acef6ec9a7d9ad3b80b6c2078ad4467cee668a81e3b3c80bcf2a"),
    file("gym_mujoco_v2", "walker2d_medium-v2.hdf5", 232_254_996, "cf00f43add04c17fdfc2958dd581dea0851b2e5bedbe6fda073758a8f841aeda"),
    file("gym_mujoco_v2", "walker2d_medium_expert-v2.hdf5", 462_197_079, "6b8d7f868c45bbaedf460be797fb7271b46dee6ebe45fe7a64319f2005b59a04"),
    file("gym_mujoco_v2", "walker2d_medium_replay-v2.hdf5", 86_323_963, "e75de96a4f77acf7d4e0d6fdf0d7ccb177c26c44bb4388e4fd99f543ccfa18db"),
    file("gym_mujoco_v2", "walker2d_random-v2.hdf5", 216_109_364, "4e863bb6090cf4a461548bd470564b32f1ae5b32ef3085f816b2ede7f092e7fa"),
    file("gym_mujoco_v2", "ant_expert-v2.hdf5", 373_231_677, "fa22531ca79ea051006fa48bb652120d2e12c813919c530369a03c2688311b0f"),
    file("gym_mujoco_v2", "ant_full_replay-v2.hdf5", 449_390_167, "b95b0a7f34b1d5d1bedfded0f8e9cfc508b59de83cd4cbfb65b18dbd5056f26c"),
    file("gym_mujoco_v2", "ant_medium-v2.hdf5", 376_239_825, "461c03b9f70f40d66b47608a92965e4ef3642bd9cdb1320d10acc92754167137"),
    file("gym_mujoco_v2", "ant_medium_expert-v2.hdf5", 748_335_217, "8cfb64e62d8944b5d9dada5f0cfc13a295fafe0c6ba58b778e32ebf16c95aef1"),
    file("gym_mujoco_v2", "ant_medium_replay-v2.hdf5", 136_482_252, "844c4e5743ef51091f2106a3570b257fb149032c4743f8a5f02f40adc3b42a46"),
    file("gym_mujoco_v2", "ant_random-v2.hdf5", 384_466_831, "93cc10893eed2b8e17f81d1aa51dc23d27c5ca101a3804249f6bd038c6f06055"),
    file("ant_maze_new", "Ant_maze_big-maze_noisy_multistart_True_multigoal_False_sparse.hdf5", 231_110_993, "527385c14b87892e8c222c43246546d6cd461fa2a5476d0b3b105ae422b7637c"),
    file("ant_maze_new", "Ant_maze_big-maze_noisy_multistart_True_multigoal_True_sparse.hdf5", 231_095_454, "b77764cac90c23e09905539c49ceb3949b49c5b39eb9d51788cc64b9dd0a2c0d"),
    file("ant_maze_new", "Ant_maze_hardest-maze_noisy_multistart_True_multigoal_False_sparse.hdf5", 230_880_846, "e37afef5b80b968b30cad2682f9a93ee1b400e3b58c7a7f45e7d425d03a2b03d"),
    file("ant_maze_new", "Ant_maze_hardest-maze_noisy_multistart_True_multigoal_True_sparse.hdf5", 231_183_929, "dda7acbdde1a94a14aa7b06a7e5d8141e60a03ccdc4578bff34b0444425bf11d"),
    file("ant_maze_new", "Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse.hdf5", 232_533_093, "188838316eab5882fa0e1dc8398b5e79772f64f27f0b78d6aebe838402a720c6"),
    file("ant_maze_new", "Ant_maze_u-maze_noisy_multistart_True_multigoal_True_sparse.hdf5", 230_854_793, "4aff7f77b97a8dd62e513cac8f57da7cdb458cfac7ac0cec3081b7765f2da59d"),
    file("ant_maze_v2", "Ant_maze_big-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5", 231_110_764, "c9fec1c1daad97c71d61bd47f4ccc9f74faa855b8a2d2e8107d5378018827e5b"),
    file("ant_maze_v2", "Ant_maze_big-maze_noisy_multistart_True_multigoal_True_sparse_fixed.hdf5", 231_095_166, "ad9dcbac05d1f8744a7a216083f513662f43f64f28a4a5eb225e9811902dfae7"),
    file("ant_maze_v2", "Ant_maze_hardest-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5", 230_880_653, "6d353df2457829925d7f9d4b0215587469908bd57478ea76f16417cfa944f471"),
    file("ant_maze_v2", "Ant_maze_hardest-maze_noisy_multistart_True_multigoal_True_sparse_fixed.hdf5", 231_183_710, "84f775eb7956ea9cc766704710dc520a8ab357adc7522ade47f556f0e335e284"),
    file("ant_maze_v2", "Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse_fixed.hdf5", 232_532_949, "5ef15257771c50ef4d23c7de001750e96c8bb5d9b6a5e4a821dcfb3065fbd130"),
    file("ant_maze_v2", "Ant_maze_u-maze_noisy_multistart_True_multigoal_True_sparse_fixed.hdf5", 230_854_272, "c771dd63963cd7d9f55f24a6d809064f6b82250a6aeac4c9d13f9a1d06e8c932"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        assert_eq!(PUBLISHED.len(), 80);
        for (i, file) in PUBLISHED.iter().enumerate() {
            assert!(
                file.sha256.len() == 64 && file.sha256.bytes().all(|b| b.is_ascii_hexdigit()),
                "{}",
                file.name
            );
            assert!(
                PUBLISHED[..i].iter().all(|other| other.sha256 != file.sha256 && other.name != file.name)
            );
        }
        let hopper = PublishedFile::all().find(|file| file.name == "hopper_medium-v2.hdf5").unwrap();
        assert_eq!(hopper.address(), format!("{ROOT}/gym_mujoco_v2/hopper_medium-v2.hdf5"));
    }

    #[test]
    fn every_file_has_an_id_of_its_own() {
        let ids: std::collections::BTreeSet<String> = PublishedFile::all().map(PublishedFile::id).collect();
        assert_eq!(ids.len(), PUBLISHED.len());
        for (id, name) in [
            ("hopper-medium-v2", "hopper_medium-v2.hdf5"),
            ("hopper-medium-expert-v0", "hopper_medium_expert.hdf5"),
            ("walker2d-medium-replay-v0", "walker_mixed.hdf5"),
            ("ant-full-replay-v1", "ant_full_replay-v1.hdf5"),
            ("antmaze-umaze-v0", "Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse.hdf5"),
            (
                "antmaze-large-diverse-v2",
                "Ant_maze_hardest-maze_noisy_multistart_True_multigoal_True_sparse_fixed.hdf5",
            ),
        ] {
            assert_eq!(PublishedFile::of_id(id).map(|file| file.name), Some(name), "{id}");
        }
        assert_eq!(PublishedFile::of_id("hopper-medium"), None);
    }

    #[test]
    fn a_file_is_judged_by_its_bytes_and_then_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: u64| {
            let path = dir.path().join(name);
            File::create(&path).unwrap().set_len(bytes).unwrap();
            path
        };
        let hopper = PublishedFile::all().find(|file| file.name == "hopper_medium-v2.hdf5").unwrap();
        let words = |path: &Path| Genuineness::of(path).unwrap().map(|found| found.words());
        assert!(words(&write(hopper.name, 1000)).unwrap().contains("a fragment of it, or another file"));
        assert!(words(&write(hopper.name, hopper.bytes + 1)).unwrap().contains("its bytes differ"));
        assert_eq!(words(&write("my-logs.hdf5", 1000)), None);
        // The length of a published file and other bytes: only its content tells.
        let small = PublishedFile::all().min_by_key(|file| file.bytes).unwrap();
        assert_eq!(words(&write("my-logs.hdf5", small.bytes)), None);
        assert!(words(&write(small.name, small.bytes)).unwrap().contains("its bytes differ"));
    }
}
