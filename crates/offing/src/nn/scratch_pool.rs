//! Working memory that is allocated once and reused.

use std::sync::Mutex;

/// Scratch space shared by threads that come and go: at most as many exist as were ever in use at once.
#[derive(Debug)]
pub struct ScratchPool<T>(Mutex<Vec<T>>);

impl<T> Default for ScratchPool<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

/// A clone starts empty: scratch space holds nothing worth copying.
impl<T> Clone for ScratchPool<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> ScratchPool<T> {
    /// Lends an item to `work`, making one when none is free.
    pub fn with<R>(&self, make: impl FnOnce() -> T, work: impl FnOnce(&mut T) -> R) -> R {
        let kept = self.0.lock().ok().and_then(|mut free| free.pop());
        let mut item = kept.unwrap_or_else(make);
        let result = work(&mut item);
        if let Ok(mut free) = self.0.lock() {
            free.push(item);
        }
        result
    }
}
