//! A request in the encoding of the Redis protocol. `transport/decoder.rs` reads the replies.

use itoa::Buffer;

pub(super) struct Packed<'a>(pub(super) &'a mut Vec<u8>);

impl Packed<'_> {
    pub(super) fn begin(into: &mut Vec<u8>, parts: usize) -> Packed<'_> {
        // 48 bytes suffice for the usual number, name or visitor.
        into.reserve(parts * 48);
        let mut packed = Packed(into);
        packed.head(b'*', parts);
        packed
    }

    #[inline(never)]
    pub(super) fn text(&mut self, pieces: &[&str]) {
        self.bytes(pieces.iter().map(|piece| piece.as_bytes()));
    }

    #[inline(never)]
    pub(super) fn number(&mut self, number: i64) {
        self.text(&[Buffer::new().format(number)]);
    }

    pub(super) fn encoded(&mut self, parts: &[u8]) {
        self.0.extend_from_slice(parts);
    }

    pub(super) fn raw(&mut self, part: &[u8]) {
        self.bytes([part].into_iter());
    }

    #[inline]
    fn bytes<'b>(&mut self, pieces: impl Iterator<Item = &'b [u8]> + Clone) {
        self.head(b'$', pieces.clone().map(<[u8]>::len).sum());
        pieces.for_each(|piece| self.0.extend_from_slice(piece));
        self.0.extend_from_slice(b"\r\n");
    }

    #[inline(never)]
    fn head(&mut self, kind: u8, length: usize) {
        self.0.push(kind);
        let mut digits = Buffer::new();
        self.0.extend_from_slice(digits.format(length).as_bytes());
        self.0.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_encoded_as_by_the_redis_crate() {
        let mut ours = b"before".to_vec();
        let mut packed = Packed::begin(&mut ours, 6);
        packed.text(&["EVALSHA"]);
        packed.text(&["a:", "{ü}", ""]);
        packed.text(&[]);
        packed.number(i64::MIN);
        packed.number(1_700_000_000_123);
        packed.raw(b"\xff\r\n");
        let mut theirs = redis::cmd("EVALSHA");
        theirs.arg("a:{ü}").arg("").arg(i64::MIN);
        theirs.arg(1_700_000_000_123_i64).arg(b"\xff\r\n");
        let theirs = [&b"before"[..], &theirs.get_packed_command()].concat();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn the_buffer_is_reserved_for_all_parts() {
        let mut packed = Vec::new();
        Packed::begin(&mut packed, 20);
        assert!(packed.capacity() >= 20 * 48, "{}", packed.capacity());
    }
}
