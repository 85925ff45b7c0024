//! Simulators shared by worker threads.

use std::sync::{Mutex, PoisonError};

use super::{Env, Physics, Simulators};
use crate::error::Result;

/// Simulators of one task, shared by worker threads: a worker borrows an idle one, or the pool builds a new one.
///
/// Chance decides which worker gets which instance, so nothing may depend on it: every episode starts with
/// [`Env::reset`] or [`Env::set_state`].
pub struct EnvPool<'a> {
    make: Box<dyn Fn() -> Result<Box<dyn Env>> + Send + Sync + 'a>,
    idle: Mutex<Vec<Box<dyn Env>>>,
}

impl<'a> EnvPool<'a> {
    /// An empty pool that builds its simulators with `make`.
    pub fn new(make: impl Fn() -> Result<Box<dyn Env>> + Send + Sync + 'a) -> Self {
        Self { make: Box::new(make), idle: Mutex::new(Vec::new()) }
    }

    /// An empty pool of simulators of `task`.
    pub fn of_task(simulators: &'a dyn Simulators, task: &str, physics: Physics) -> Self {
        let task = task.to_string();
        Self::new(move || simulators.make(&task, physics))
    }

    /// Runs `work` with a simulator of its own.
    pub fn with<T>(&self, work: impl FnOnce(&mut dyn Env) -> T) -> Result<T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut env = match idle {
            Some(env) => env,
            None => (self.make)()?,
        };
        let result = work(env.as_mut());
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(env);
        Ok(result)
    }
}
