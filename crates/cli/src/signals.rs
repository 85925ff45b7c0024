//! Ctrl-C and SIGTERM: the first asks a training to save and stop, the second ends the process at once.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);
static EMBEDDED: AtomicBool = AtomicBool::new(false);

/// Listens from now on. Called by commands that can stop in an orderly way; the others die at once, as programs do.
pub(crate) fn listen() {
    if EMBEDDED.load(Ordering::SeqCst) {
        return;
    }
    // Fails only when a handler is there already, which then does the same.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("\n· saving a checkpoint, then stopping (once more to stop without)");
    });
}

/// Also stops in an orderly way when standard input ends: whoever started this process has stopped or is no more.
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

/// Leaves signals to the program that offing is part of, which calls [`ask_to_stop`] instead; forgets earlier wishes.
pub(crate) fn leave_to_host() {
    EMBEDDED.store(true, Ordering::SeqCst);
    ASKED.store(false, Ordering::SeqCst);
}

/// What the first Ctrl-C does.
pub(crate) fn ask_to_stop() {
    ASKED.store(true, Ordering::SeqCst);
}
