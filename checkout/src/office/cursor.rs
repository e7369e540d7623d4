//! PURE: where a reader of the feed stands. Opaque to readers, so that it may become something else.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use lockgate_shared::ids::SaleId;

/// Begins every cursor of this form.
const FORM: &str = "1";

/// The cursor after `position` of a sale's feed.
#[must_use]
pub fn write(sale: &SaleId, position: u64) -> String {
    URL_SAFE_NO_PAD.encode(format!("{FORM}/{sale}/{position}"))
}

/// The position that a cursor of this sale names; `None` when it is no cursor of this sale.
#[must_use]
pub fn read(sale: &SaleId, cursor: &str) -> Option<u64> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let position = text.strip_prefix(&format!("{FORM}/{sale}/"))?.parse().ok()?;
    // One position has one spelling.
    (write(sale, position) == cursor).then_some(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_in_its_own_sale_only() {
        let (demo, other): (SaleId, SaleId) = ("demo".parse().unwrap(), "other".parse().unwrap());
        for position in [0, 7, u64::MAX] {
            assert_eq!(read(&demo, &write(&demo, position)), Some(position));
            assert_eq!(read(&other, &write(&demo, position)), None);
        }
        let padded = URL_SAFE_NO_PAD.encode("1/demo/007");
        for bad in ["", "7", "MQ", "!", &padded, &format!("{}=", write(&demo, 1))] {
            assert_eq!(read(&demo, bad), None, "{bad}");
        }
    }
}
