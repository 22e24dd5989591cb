//! Slots of a Redis Cluster.

/// Returns the slot of a key in a Redis Cluster: CRC16 (XMODEM) of the key, or of the text in its first braces, mod 16384.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|sign| *sign == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|sign| *sign == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    let crc = tag.unwrap_or(key).iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    crc % 16384
}
