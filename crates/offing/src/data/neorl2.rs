//! NeoRL-2's published files: where they are, and what their bytes add up to.
//!
//! Addresses and MD5 sums are those of the authors' own loader (polixir/NeoRL2, `neorl2/envs/info.py`). Lengths and SHA-256 are
//! known for the files that were at hand; their MD5 sums were the loader's.

use crate::error::{Error, Result};

/// What the id of a NeoRL-2 file begins with.
pub const PREFIX: &str = "neorl2:";

/// Where the authors' loader finds the files.
const ROOT: &str = "http://datasets.polixir.site/neorl2";

/// A file as it was published: one task, for training or validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeoRl2File {
    /// The task, such as `DMSD`.
    pub task: &'static str,
    /// `train` or `val`.
    pub part: &'static str,
    /// MD5 of its content, in hexadecimal digits.
    pub md5: &'static str,
    /// Length and SHA-256, where they are known.
    pub known: Option<(u64, &'static str)>,
}

impl NeoRl2File {
    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        FILES.iter()
    }

    /// Its name: `DMSD-train.npz`.
    pub fn name(&self) -> String {
        format!("{}-{}.npz", self.task, self.part)
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("{ROOT}/{}/{}", self.task, self.name())
    }

    /// Its id: `neorl2:DMSD` for the rows to train on, `neorl2:DMSD-val` for the others.
    pub fn id(&self) -> String {
        match self.part {
            "train" => format!("{PREFIX}{}", self.task),
            part => format!("{PREFIX}{}-{part}", self.task),
        }
    }

    /// The file of an id; `neorl2:DMSD-train` is one too.
    ///
    /// # Errors
    /// No such file.
    pub fn of_id(id: &str) -> Result<&'static Self> {
        let plain = id.strip_suffix("-train").unwrap_or(id);
        Self::all().find(|file| file.id() == plain).ok_or_else(|| {
            let known: Vec<String> = Self::all().map(Self::id).collect();
            Error::unknown("dataset", id, &known)
        })
    }
}

const fn file(
    task: &'static str,
    part: &'static str,
    md5: &'static str,
    known: Option<(u64, &'static str)>,
) -> NeoRl2File {
    NeoRl2File { task, part, md5, known }
}

#[rustfmt::skip]
const FILES: &[NeoRl2File] = &[
    file("DMSD", "train", "88dfa39aa18904e809056b51c2e6319b", Some((4_117_923, "b6f892ceac612d5e4e4c10308959aa058861fe7d0fc06a0c8df8ac7e8bc78f3b"))),
    file("DMSD", "val", "be6c39c0e73c17029206e714068f26b7", Some((790_776, "15a8df46b8c6c0203cc0a73b60a97e31274ade1eafa8c6df47f5f43440ef15bb"))),
    file("Fusion", "train", "98979f97e0b59dd46bbb9237176a68ab", None),
    file("Fusion", "val", "9baa5556fac98b86ab9b58040da17d86", None),
    file("Pipeline", "train", "59902b333be6edb9252acfc2302cc1ed", None),
    file("Pipeline", "val", "c502f529db1de55ebf37d63e1defca56", None),
    file("RandomFrictionHopper", "train", "3ef2c41483689729d3b5a3aef3b7b8f7", None),
    file("RandomFrictionHopper", "val", "2628f354222de37803451c63e84a1269", None),
    file("RocketRecovery", "train", "b1a7bf1ec16cfef390b6b1cec2b13ddc", None),
    file("RocketRecovery", "val", "0b25bd998e92b4f808f8ee5207ce06dd", None),
    file("SafetyHalfCheetah", "train", "c35efec4a25fb45837487ba00f74e1ed", None),
    file("SafetyHalfCheetah", "val", "da65ba51a4cc17370572da3c801d228b", None),
    file("Salespromotion", "train", "7e84d0a142f53512dab082115c9ee498", None),
    file("Salespromotion", "val", "9337d7b68078725708f2e9b04cb4a1f8", None),
    file("Simglucose", "train", "6195a3634379f576958440b7e0c8fc53", Some((1_466_050, "f6de45d1d2c1901bb12d143a61ae778ca07c3f23a5a337a5bb59ba09b283bc6c"))),
    file("Simglucose", "val", "6df907556cbc96002757f6d652be9d92", Some((290_922, "bc1142afe018e59552c1927bed867c3d71c7bf707c7a6dc78f6e30641a5b7c8a"))),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_files_are_each_others() {
        for file in NeoRl2File::all() {
            assert_eq!(NeoRl2File::of_id(&file.id()).unwrap(), file);
            assert!(file.md5.len() == 32 && file.known.is_none_or(|(_, sha256)| sha256.len() == 64));
        }
        let dmsd = NeoRl2File::of_id("neorl2:DMSD").unwrap();
        assert_eq!(dmsd, NeoRl2File::of_id("neorl2:DMSD-train").unwrap());
        assert_eq!(dmsd.address(), "http://datasets.polixir.site/neorl2/DMSD/DMSD-train.npz");
        let error = NeoRl2File::of_id("neorl2:DMSE").unwrap_err().to_string();
        assert!(error.contains("did you mean `neorl2:DMSD`?"), "{error}");
    }
}
