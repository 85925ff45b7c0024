//! Protocol buffers, written by hand: the few wire types that ONNX models and TensorBoard's events need.
//!
//! The crates for either format bring a protobuf runtime or a build step for a handful of length-prefixed fields.

/// A message under construction: fields are added in order.
#[derive(Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    /// Seven bits a byte, lowest first; the highest bit says that more follow.
    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    pub(crate) fn number(self, field: u64, value: u64) -> Self {
        self.varint(field << 3).varint(value)
    }

    pub(crate) fn float(self, field: u64, value: f32) -> Self {
        let mut tagged = self.varint(field << 3 | 5);
        tagged.0.extend(value.to_le_bytes());
        tagged
    }

    pub(crate) fn bytes(self, field: u64, value: &[u8]) -> Self {
        let mut tagged = self.varint(field << 3 | 2).varint(value.len() as u64);
        tagged.0.extend_from_slice(value);
        tagged
    }

    pub(crate) fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    pub(crate) fn message(self, field: u64, value: Message) -> Self {
        self.bytes(field, &value.0)
    }

    /// A repeated field.
    pub(crate) fn messages(self, field: u64, values: impl IntoIterator<Item = Message>) -> Self {
        values.into_iter().fold(self, |message, value| message.message(field, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_split_as_protobuf_wants() {
        assert_eq!(Message::default().number(1, 300).0, [0x08, 0xac, 0x02]);
    }
}
