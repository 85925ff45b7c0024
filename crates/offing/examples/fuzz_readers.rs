//! Damages small files and reads them: nothing may panic, hang, abort or take much memory.
//!
//! ```console
//! $ cargo run --release -p offing --example fuzz_readers -- 300000
//! $ cargo run --release -p offing --example fuzz_readers -- --minutes 10 --seed 7 --corpus my-files
//! $ cargo run --release -p offing --example fuzz_readers -- --case 4711 --keep damaged
//! ```
//!
//! Every entry of the corpus is a dataset, a file of observations (`.npy`), a policy (`.safetensors`), a checkpoint (`.checkpoint`), a
//! saved index (`.knn`), a condition (`.condition`), a column map or settings (`.toml`) or a run directory with a config.toml. Cases
//! are numbered: number and seed decide what is damaged and how. They are read in a process of its own, with 2 GB of address space
//! more than it begins with. It says which case comes next, so that one that ends it or twice takes more than five seconds is
//! known; it is reported and the rest goes on. At the end stand the largest memory and the slowest case.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use offing::config::read_table;
use offing::data::{ColumnMap, Observations, ReadOptions, read, read_npy, recorded_policy};
use offing::dynamics::Expression;
use offing::nn::Tensors;
use offing::policy::TanhGaussian;
use offing::sac::Actor;
use offing::train::RunManifest;
use offing::uncertainty::Sumo;
use offing::{Error, Rng};

/// Longest time for one case.
const PATIENCE: Duration = Duration::from_secs(5);
/// Address space of the reading process, in kilobytes: 2 GB and what an idle one takes.
const ADDRESS_SPACE: u64 = 2_500_000;

struct Options {
    corpus: PathBuf,
    seed: u64,
    cases: std::ops::Range<u64>,
    /// When to stop, whatever is left.
    deadline: Option<Instant>,
    /// Reads the cases itself.
    worker: bool,
    /// Where to leave the damaged files of the last case.
    keep: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprintln!(
            "usage: fuzz_readers [CASES | --minutes N] [--seed N] [--corpus DIR] [--case N [--keep DIR]]"
        );
        return ExitCode::from(2);
    };
    let corpus = match Entry::all(&options.corpus) {
        Ok(corpus) if !corpus.is_empty() => corpus,
        Ok(_) => return refuse("wanted files, found none"),
        Err(error) => return refuse(&format!("{}: {error}", options.corpus.display())),
    };
    let done = if options.worker { work(&options, &corpus) } else { watch(&options, &corpus) };
    done.unwrap_or_else(|error| refuse(&error.to_string()))
}

fn refuse(words: &str) -> ExitCode {
    eprintln!("{words}");
    ExitCode::from(2)
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<Options> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut options =
        Options { corpus, seed: 0, cases: 0..10_000, deadline: None, worker: false, keep: None };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seed" => options.seed = args.next()?.parse().ok()?,
            "--minutes" => {
                let seconds = 60.0 * args.next()?.parse::<f64>().ok()?;
                options.deadline = Some(Instant::now() + Duration::try_from_secs_f64(seconds).ok()?);
                options.cases = 0..u64::MAX;
            }
            "--corpus" => options.corpus = args.next()?.into(),
            "--keep" => options.keep = Some(args.next()?.into()),
            "--case" => {
                let case: u64 = args.next()?.parse().ok()?;
                (options.cases, options.worker) = (case..case + 1, true);
            }
            "--worker" => {
                options.cases = args.next()?.parse().ok()?..args.next()?.parse().ok()?;
                options.worker = true;
            }
            cases => options.cases = 0..cases.parse().ok()?,
        }
    }
    Some(options)
}

/// One thing to read: a file, or a directory of files.
struct Entry {
    name: String,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Entry {
    fn all(corpus: &Path) -> std::io::Result<Vec<Self>> {
        let mut names: Vec<PathBuf> =
            std::fs::read_dir(corpus)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        names.sort();
        // An index and its card are one entry.
        names.retain(|path| !path.to_string_lossy().ends_with(".knn.json"));
        names.iter().map(|path| Self::load(corpus, path)).collect()
    }

    fn load(corpus: &Path, path: &Path) -> std::io::Result<Self> {
        let mut paths = vec![path.to_path_buf()];
        let card = PathBuf::from(format!("{}.json", path.display()));
        paths.extend(card.is_file().then_some(card));
        let mut files = Vec::new();
        while let Some(next) = paths.pop() {
            if next.is_dir() {
                for entry in std::fs::read_dir(&next)? {
                    paths.push(entry?.path());
                }
            } else {
                let inside = next.strip_prefix(corpus).map_err(std::io::Error::other)?.to_path_buf();
                files.push((inside, std::fs::read(&next)?));
            }
        }
        files.sort();
        Ok(Self { name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(), files })
    }

    /// Writes all files below `dir`, one of them damaged.
    fn write_damaged(&self, dir: &Path, rng: &mut Rng) -> std::io::Result<()> {
        let at = rng.below(self.files.len());
        for (i, (path, bytes)) in self.files.iter().enumerate() {
            let path = dir.join(path);
            if let Some(above) = path.parent() {
                std::fs::create_dir_all(above)?;
            }
            match i == at {
                false => std::fs::write(path, bytes)?,
                true => std::fs::write(path, damaged(bytes, rng))?,
            }
        }
        Ok(())
    }

    /// Reads it; what was found does not matter, an error must be one line.
    fn read(&self, dir: &Path) {
        let path = dir.join(&self.name);
        let bytes = || std::fs::read(&path).unwrap_or_default();
        let error = match path.extension().and_then(|ending| ending.to_str()) {
            Some("knn") => Sumo::load(&path, 1).err(),
            Some("safetensors") => {
                let policy =
                    Tensors::from_foreign_bytes(&bytes()).and_then(|tensors| Actor::from_policy(&tensors));
                policy.err().into_iter().for_each(|error| check(&self.name, &error));
                TanhGaussian::load(&path).err()
            }
            Some("checkpoint") => Tensors::from_bytes(&bytes()).err(),
            Some("npy") => {
                read_npy(&path).err().into_iter().for_each(|error| check(&self.name, &error));
                Observations::open(&path, None).and_then(|mut rows| rows.next_rows()).err()
            }
            Some("toml") => {
                ColumnMap::from_file(&path).err().into_iter().for_each(|error| check(&self.name, &error));
                read_table(&path).err()
            }
            Some("hdf5") => {
                recorded_policy(&path).err().into_iter().for_each(|error| check(&self.name, &error));
                read(&path, &ReadOptions::default()).err()
            }
            Some("condition") => Expression::parse(&String::from_utf8_lossy(&bytes()), 3, 2).err(),
            _ if path.join("config.toml").is_file() => RunManifest::read(&path).err(),
            _ => read(&path, &ReadOptions::default()).err(),
        };
        error.into_iter().for_each(|error| check(&self.name, &error));
    }
}

fn check(name: &str, error: &Error) {
    let error = error.to_string();
    assert!(!error.contains(char::is_control), "{name}: not one plain line: {error:?}");
}

/// One to five damages.
fn damaged(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    const WORDS: [u64; 8] = [0, 1, u64::MAX, 1 << 31, 1 << 32, 1 << 62, 1 << 63, i64::MAX as u64];
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + rng.below(5) {
        if bytes.is_empty() {
            break;
        }
        // Structure is in headers and footers.
        let len = bytes.len();
        let (from, span) = match rng.below(3) {
            0 => (0, len),
            1 => (0, len.min(256)),
            _ => (len.saturating_sub(512), len.min(512)),
        };
        let at = from + rng.below(span);
        match rng.below(8) {
            0..=2 => bytes[at] ^= 1 << rng.below(8),
            3 => bytes[at] = rng.below(256) as u8,
            4 => {
                let width = [1, 2, 4, 8][rng.below(4)].min(len - at);
                let word = WORDS[rng.below(WORDS.len())].to_le_bytes();
                bytes[at..at + width].copy_from_slice(&word[..width]);
            }
            5 => bytes.truncate(at),
            6 => {
                let piece = bytes[at..(at + 1 + rng.below(64)).min(len)].to_vec();
                let to = rng.below(len);
                let stop = (to + piece.len()).min(len);
                bytes[to..stop].copy_from_slice(&piece[..stop - to]);
            }
            _ => {
                // Again, at the same place: deeper nesting, longer lists.
                let piece = bytes[at..(at + 1 + rng.below(64)).min(len)].to_vec();
                let most = 1 << rng.below(8);
                let times = 1 + rng.below(most);
                let more: Vec<u8> = piece.iter().copied().cycle().take(piece.len() * times).collect();
                bytes.splice(at..at, more);
            }
        }
    }
    bytes
}

/// Reads cases one after the other, saying each number before it.
fn work(options: &Options, corpus: &[Entry]) -> std::io::Result<ExitCode> {
    let temp = tempfile::tempdir()?;
    let dir = options.keep.as_deref().unwrap_or(temp.path());
    let mut out = std::io::stdout().lock();
    for case in options.cases.clone() {
        writeln!(out, "{case}")?;
        out.flush()?;
        let entry = &corpus[case as usize % corpus.len()];
        entry.write_damaged(dir, &mut Rng::stream(options.seed, "case", case))?;
        entry.read(dir);
        if case % 256 == 0 || case + 1 == options.cases.end {
            writeln!(out, "peak {}", peak_memory())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Most memory that this process has held, in kilobytes; 0 where the system does not say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// What the reading process says.
enum Said {
    Case(u64),
    Peak(u64),
}

/// Has cases read by another process, and again by a new one after each that failed.
fn watch(options: &Options, corpus: &[Entry]) -> std::io::Result<ExitCode> {
    let (mut next, started) = (options.cases.start, Instant::now());
    let mut failures: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let (mut peak, mut slowest) = (0, (Duration::ZERO, 0));
    let over = || options.deadline.is_some_and(|deadline| Instant::now() > deadline);
    let mut waited_for = None;
    'processes: while next < options.cases.end && !over() {
        let (mut child, said) = start(options, next)?;
        let mut since = Instant::now();
        let why = loop {
            match said.recv_timeout(PATIENCE) {
                Ok(_) if over() => {
                    child.kill()?;
                    child.wait()?;
                    break None;
                }
                Ok(Said::Peak(kilobytes)) => peak = peak.max(kilobytes),
                Ok(Said::Case(case)) => {
                    // The first one waits for the process to start.
                    if case > next {
                        slowest = slowest.max((since.elapsed(), next));
                    }
                    (next, since) = (case, Instant::now());
                }
                Err(RecvTimeoutError::Timeout) => {
                    child.kill()?;
                    child.wait()?;
                    // A machine with too much to do may keep any process waiting: what hangs, hangs again.
                    if waited_for.replace(next) != Some(next) {
                        continue 'processes;
                    }
                    break Some("hangs".to_string());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = child.wait()?;
                    break (!status.success()).then(|| status.to_string());
                }
            }
        };
        if let Some(why) = why {
            let entry = &corpus[next as usize % corpus.len()].name;
            eprintln!("case {next} (seed {}): {entry}: {why}", options.seed);
            failures.entry(entry.clone()).or_default().push(next);
        }
        next += 1;
    }
    let failed: usize = failures.values().map(Vec::len).sum();
    println!(
        "{} cases over {} entries with seed {}, {:.0} s: {failed} failed; at most {} MB; slowest: case {} with {:.3} s",
        next.min(options.cases.end),
        corpus.len(),
        options.seed,
        started.elapsed().as_secs_f64(),
        peak / 1000,
        slowest.1,
        slowest.0.as_secs_f64()
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A process that reads the cases from `next` on, and the numbers that it says.
fn start(options: &Options, next: u64) -> std::io::Result<(Child, Receiver<Said>)> {
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {ADDRESS_SPACE}; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe()?)
        .arg("--corpus")
        .arg(&options.corpus)
        .args(["--seed", &options.seed.to_string()])
        .args(["--worker", &next.to_string(), &options.cases.end.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let (sender, receiver) = channel();
    let out = child.stdout.take().ok_or_else(|| std::io::Error::other("no output"))?;
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let said = match line.strip_prefix("peak ") {
                Some(peak) => peak.parse().map(Said::Peak),
                None => line.parse().map(Said::Case),
            };
            if said.is_ok_and(|said| sender.send(said).is_err()) {
                break;
            }
        }
    });
    Ok((child, receiver))
}
