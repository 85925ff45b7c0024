//! Index files (to be written).
