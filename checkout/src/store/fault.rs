//! Whose fault a failed call was: the data's, or the store's. Only the first speaks against a record.

use std::error::Error as _;

use lockgate_shared::store::{Effect, StoreError};
use rusqlite::ErrorCode;

use super::rows::RowError;

/// What is stored, or was to be stored, cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct Unreadable(RowError);

/// Marks an error that arose over rows, not in a driver.
pub(super) fn over_rows(error: RowError) -> RowError {
    let is_drivers = error.is::<tokio_postgres::Error>()
        || error.is::<deadpool_postgres::PoolError>()
        || error.is::<Unreadable>();
    if is_drivers { error } else { Box::new(Unreadable(error)) }
}

/// Whether a call failed because of the data it was about: it breaks a constraint, has no such form, or cannot be
/// read. A lock, a time limit, a missing right, a full disk or a lost connection would fail any other record too.
pub(crate) fn is_of_data(error: &StoreError) -> bool {
    let Some(source) = error.source() else { return false };
    if error.effect == Effect::Unknown {
        return false;
    }
    if let Some(error) = source.downcast_ref::<tokio_postgres::Error>() {
        return error.code().is_some_and(|state| is_state_of_data(state.code()));
    }
    if let Some(error) = source.downcast_ref::<rusqlite::Error>() {
        return match error {
            rusqlite::Error::SqliteFailure(failure, _) => matches!(
                failure.code,
                ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig
            ),
            _ => true,
        };
    }
    source.is::<Unreadable>()
}

/// SQLSTATE classes 22, data exception, and 23, integrity constraint violation.
fn is_state_of_data(state: &str) -> bool {
    state.starts_with("22") || state.starts_with("23")
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn m11_only_what_is_wrong_with_the_data_speaks_against_it() {
        let of_data = ["22021", "22P02", "23505", "23514"];
        assert!(of_data.iter().all(|state| is_state_of_data(state)));
        let of_the_store = ["57014", "55P03", "40001", "40P01", "53100", "53300", "57P01", "42501", "42P01"];
        assert!(!of_the_store.iter().any(|state| is_state_of_data(state)));
        let sqlite = |code| {
            let failed = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            is_of_data(&StoreError::untouched("place", failed))
        };
        assert!(sqlite(ffi::SQLITE_CONSTRAINT) && sqlite(ffi::SQLITE_TOOBIG));
        assert!(!sqlite(ffi::SQLITE_FULL) && !sqlite(ffi::SQLITE_BUSY) && !sqlite(ffi::SQLITE_IOERR));
    }

    #[test]
    fn what_cannot_be_read_is_the_datas_fault_and_a_word_of_ours_is_not() {
        assert!(is_of_data(&StoreError::untouched("place", over_rows("'x' is no state".into()))));
        assert!(!is_of_data(&StoreError::untouched("place", "8192 writes are waiting already")));
        assert!(!is_of_data(&StoreError::unknown("place", over_rows("'x' is no state".into()))));
    }
}
