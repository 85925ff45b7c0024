//! Ctrl-C and SIGTERM: the first asks a training to save and stop, the second ends the process at once.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);
static EMBEDDED: AtomicBool = AtomicBool::new(false);
static KEEPS: AtomicU8 = AtomicU8::new(Keeps::Checkpoint as u8);

/// What is left of a command that is asked to stop.
#[derive(Clone, Copy)]
enum Keeps {
    Checkpoint,
    Nothing,
    PartialFiles,
}

/// Listens from now on. Called by commands that can stop in an orderly way; the others die at once, as programs do.
pub(crate) fn listen() {
    if EMBEDDED.load(Ordering::SeqCst) {
        return;
    }
    // Fails only when there is a handler already, which does the same.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("\n· {}", answer(KEEPS.load(Ordering::SeqCst)));
    });
}

/// What the first Ctrl-C is answered with.
fn answer(keeps: u8) -> &'static str {
    match keeps {
        k if k == Keeps::Nothing as u8 => {
            "stopping at the next opportunity; nothing is kept (once more to stop at once)"
        }
        k if k == Keeps::PartialFiles as u8 => {
            "stopping; what was fetched is kept for the next time (once more to stop at once)"
        }
        _ => "saving a checkpoint, then stopping (once more to stop without)",
    }
}

/// Marks this command as one without checkpoints, so that the answer promises none.
pub(crate) fn keep_nothing() {
    KEEPS.store(Keeps::Nothing as u8, Ordering::SeqCst);
}

/// Marks this command as one that goes on with what it fetched.
pub(crate) fn keep_partial_files() {
    KEEPS.store(Keeps::PartialFiles as u8, Ordering::SeqCst);
}

/// Also stops in an orderly way when standard input ends: whoever started this process has ended.
pub(crate) fn listen_to_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        ASKED.store(true, Ordering::SeqCst);
    });
}

/// Whether the user asked to stop.
pub(crate) fn asked_to_stop() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Leaves signals to the program that offing is part of, which calls [`ask_to_stop`] instead; forgets earlier requests.
pub(crate) fn leave_to_host() {
    EMBEDDED.store(true, Ordering::SeqCst);
    ASKED.store(false, Ordering::SeqCst);
}

/// What the first Ctrl-C does.
pub(crate) fn ask_to_stop() {
    ASKED.store(true, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_promised_only_where_there_is_one() {
        let of = |keeps: Keeps| answer(keeps as u8);
        assert!(of(Keeps::Checkpoint).contains("saving a checkpoint"));
        assert!(!of(Keeps::Nothing).contains("saving") && of(Keeps::Nothing).contains("nothing is kept"));
        assert!(of(Keeps::PartialFiles).contains("what was fetched is kept"));
    }
}
