//! The way between the threads that work and the thread that called. Work runs beside the interpreter; whatever needs Python
//! is sent back and done on the caller's own thread. So a Python function sees its caller's thread-local state (torch's
//! `no_grad`, warning filters), Ctrl-C reaches it as everywhere else, and the interpreter's lock is taken once a call.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use offing_experiments::Runtime;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;

use crate::errors::of_command;
use crate::index::width;

/// How soon Ctrl-C is noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// The stack of the thread that does the work: what a program's first thread gets.
const STACK: usize = 8 << 20;

enum Message {
    Call(Box<dyn FnOnce(Python<'_>) + Send>),
    Done,
}

/// Unwinds through library code that cannot fail, where Python raised inside it; [`Bridge`] holds the exception.
struct Raised;

/// Calls Python from a working thread.
#[derive(Clone)]
pub(crate) struct Bridge {
    send: Sender<Message>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The first exception of a Python function.
    raised: Mutex<Option<PyErr>>,
    /// Whether the work is to save and stop.
    stop: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bridge {
    /// Runs `work` on the caller's thread; `None` when it raised. The exception is kept, and whoever waits gets it.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(Python<'_>) -> PyResult<T> + Send + 'static,
    ) -> Option<T> {
        if locked(&self.shared.raised).is_some() {
            return None;
        }
        let (send, receive) = channel();
        let job = Box::new(move |py: Python<'_>| {
            // Nobody waits for the answer only while everything goes down.
            let _ = send.send(work(py));
        });
        // Whoever should answer is gone when either of these fails: the interpreter is going down.
        self.send.send(Message::Call(job)).ok()?;
        match receive.recv().ok()? {
            Ok(answer) => Some(answer),
            Err(error) => {
                locked(&self.shared.raised).get_or_insert(error);
                None
            }
        }
    }

    /// [`call`](Self::call) where the library leaves no way to fail: an exception ends the whole work at once.
    pub(crate) fn call_or_unwind<T: Send + 'static>(
        &self,
        work: impl FnOnce(Python<'_>) -> PyResult<T> + Send + 'static,
    ) -> T {
        self.call(work).unwrap_or_else(|| resume_unwind(Box::new(Raised)))
    }

    /// A function that only computes, called again where Ctrl-C interrupted it: so the work gets to the place where it saves
    /// its state. A second Ctrl-C counts.
    pub(crate) fn pure<T>(&self, py: Python<'_>, work: impl Fn() -> PyResult<T>) -> PyResult<T> {
        match work() {
            Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) && !self.stops() => {
                self.stop();
                work()
            }
            answer => answer,
        }
    }

    /// Whether the work is to save and stop: somebody asked for it, or a Python function raised.
    pub(crate) fn stops(&self) -> bool {
        self.shared.stop.load(Ordering::SeqCst) || locked(&self.shared.raised).is_some()
    }

    fn stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        offing_cli::ask_to_stop();
    }
}

/// Runs `work` on threads of its own, so that nothing is left of a parent process's threads after a fork. Meanwhile this thread
/// answers the work's calls and listens to Ctrl-C: a training saves a checkpoint and stops, and `work` answers `None`.
pub(crate) fn beside<T: Send + 'static>(
    py: Python<'_>,
    threads: Option<usize>,
    work: impl FnOnce(&Runtime, &Bridge) -> anyhow::Result<Option<T>> + Send + 'static,
) -> PyResult<T> {
    let fault = |e: &dyn std::fmt::Display| PyRuntimeError::new_err(format!("cannot start threads: {e}"));
    let mut pool = rayon::ThreadPoolBuilder::new().stack_size(STACK);
    if let Some(count) = width(threads)? {
        pool = pool.num_threads(count);
    }
    let pool = pool.build().map_err(|e| fault(&e))?;
    let (send, mut receive) = channel();
    let bridge = Bridge { send, shared: Arc::default() };
    let worker = bridge.clone();
    let thread = std::thread::Builder::new()
        .spawn(move || {
            let done = catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| {
                    offing_cli::embedded_runtime(true, threads).and_then(|runtime| work(&runtime, &worker))
                })
            }));
            // Nobody waits any more when the receiver is gone: the interpreter is going down.
            let _ = worker.send.send(Message::Done);
            done
        })
        .map_err(|e| fault(&e))?;
    let mut interrupt = None;
    loop {
        let message = py.detach(|| {
            // A receiver may go to another thread, but not be shared by two.
            let receive = &mut receive;
            receive.recv_timeout(PATIENCE)
        });
        match message {
            Ok(Message::Call(job)) => job(py),
            Ok(Message::Done) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = py.check_signals() {
                    interrupt.get_or_insert(error);
                    bridge.stop();
                }
            }
        }
    }
    let done = py.detach(|| thread.join());
    let stopped = || PyKeyboardInterrupt::new_err("stopped; the same call goes on from here");
    if let Some(error) = locked(&bridge.shared.raised).take() {
        return Err(error);
    }
    if let Some(error) = interrupt {
        return Err(if error.is_instance_of::<PyKeyboardInterrupt>(py) { stopped() } else { error });
    }
    match done.and_then(|done| done) {
        // A function that only computes was interrupted; the work saved its state and stopped.
        Ok(Ok(_)) if bridge.stops() => Err(stopped()),
        Ok(done) => done.map_err(|e| of_command(&e))?.ok_or_else(stopped),
        Err(_) => Err(PyRuntimeError::new_err("a defect of offing ended the call; its message is above")),
    }
}
