//! The admission token of a request, checked without any store.

pub use lockgate_shared::admission_check::{check, is_revoked};
