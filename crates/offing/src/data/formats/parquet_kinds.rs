//! What the numbers of a Parquet column mean: the file stores unsigned integers, decimals and times as plain integers.

use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::schema::types::ColumnDescriptor;

/// Most digits after the point that a decimal of 16 bytes can have.
const MOST_DIGITS: i32 = 38;

/// How stored integers (or bytes) become numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As they are.
    Plain,
    /// Their bits are those of an unsigned integer.
    Unsigned,
    /// Divided by ten to this power.
    Decimal(i32),
    /// A moment or a span of time, which is no measurement; with the word for it.
    Time(&'static str),
    /// Digits that no 16 bytes hold.
    LongDecimal,
}

impl Kind {
    /// The kind of a column: its logical type, or the converted type of older files.
    pub(super) fn of(column: &ColumnDescriptor) -> Self {
        if column.physical_type() == Physical::INT96 {
            return Self::Time("timestamps");
        }
        match column.logical_type_ref() {
            Some(LogicalType::Integer(integer)) if !integer.is_signed => Self::Unsigned,
            Some(LogicalType::Decimal(decimal)) => Self::decimal(decimal.scale),
            Some(LogicalType::Timestamp(_)) => Self::Time("timestamps"),
            Some(LogicalType::Date) => Self::Time("dates"),
            Some(LogicalType::Time(_)) => Self::Time("times of day"),
            Some(_) => Self::Plain,
            None => match column.converted_type() {
                ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64 => Self::Unsigned,
                ConvertedType::DECIMAL => Self::decimal(column.type_scale()),
                ConvertedType::TIMESTAMP_MILLIS | ConvertedType::TIMESTAMP_MICROS => Self::Time("timestamps"),
                ConvertedType::DATE => Self::Time("dates"),
                ConvertedType::TIME_MILLIS | ConvertedType::TIME_MICROS => Self::Time("times of day"),
                ConvertedType::INTERVAL => Self::Time("intervals of time"),
                _ => Self::Plain,
            },
        }
    }

    fn decimal(scale: i32) -> Self {
        if (0..=MOST_DIGITS).contains(&scale) { Self::Decimal(scale) } else { Self::LongDecimal }
    }
}

/// A decimal from its digits as one integer. One division by a power of ten: 5 with scale 1 is 0.5 to the last bit.
pub(super) fn scaled(unscaled: i128, scale: i32) -> f64 {
    unscaled as f64 / 10f64.powi(scale)
}

/// The integer in big-endian bytes, two's complement; `None` when they are more than 16.
pub(super) fn big_endian(bytes: &[u8]) -> Option<i128> {
    let negative = bytes.first().is_some_and(|&b| b >= 0x80);
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    let from = wide.len().checked_sub(bytes.len())?;
    wide[from..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_integers_with_a_sign() {
        for (bytes, wanted) in [
            (&[][..], Some(0)),
            (&[5], Some(5)),
            (&[0xff, 0xfb], Some(-5)),
            (&[0x00, 0xff], Some(255)),
            (&[0x80; 17], None),
        ] {
            assert_eq!(big_endian(bytes), wanted, "{bytes:?}");
        }
        assert_eq!((scaled(-15, 1), scaled(5, 1), scaled(7, 0)), (-1.5, 0.5, 7.0));
    }
}
