//! PURE: what the back office reads and takes away: the feed's cursor, orders as operators see them, and tables for
//! spreadsheets.

pub mod csv;
pub mod cursor;
mod order_view;

pub use self::order_view::{COLUMNS, OfficeOrder, csv_header, csv_row, decimal_text, json_line};
