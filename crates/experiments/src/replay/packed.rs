//! Numbers of a page as text.

use serde::Serializer;

use super::scene::Frame;

/// Frames as base64 of little-endian 32-bit integers: a third of the size of decimal numbers.
pub(super) fn frames<S: Serializer>(frames: &[Frame], out: S) -> Result<S::Ok, S::Error> {
    let bytes: Vec<u8> = frames.iter().flatten().flatten().flat_map(|x| x.to_le_bytes()).collect();
    out.serialize_str(&base64(&bytes))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let [a, b, c] = std::array::from_fn(|i| u32::from(chunk.get(i).copied().unwrap_or(0)));
        let bits = a << 16 | b << 8 | c;
        for digit in 0..4 {
            let shown = digit <= chunk.len();
            text.push(if shown { DIGITS[(bits >> (18 - 6 * digit) & 63) as usize].into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_its_standard_has_it() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
