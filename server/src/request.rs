//! Decoding of requests from a stream of bytes.

/// Why no request was decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The request is incomplete.
    More,
    /// The bytes violate the protocol.
    Wrong(&'static str),
}

/// Decodes the next complete request in `bytes`, which begins at `*at`. Advances `*at` to the end of the request.
///
/// # Errors
///
/// [`Unread`] if no request is complete or the bytes violate the protocol. `*at` is then unchanged.
pub fn next(bytes: &[u8], at: &mut usize) -> Result<Vec<Vec<u8>>, Unread> {
    let mut here = *at;
    let mut request = Vec::new();
    if bytes.get(here).ok_or(Unread::More)? == &b'*' {
        for _ in 0..count(bytes, &mut here, b'*')? {
            let length = count(bytes, &mut here, b'$')?;
            let end = here.saturating_add(length);
            match bytes.get(here..end.saturating_add(2)) {
                Some(argument) if argument.ends_with(b"\r\n") => {
                    request.push(argument[..length].to_vec());
                }
                Some(_) => return Err(Unread::Wrong("invalid bulk length")),
                None => return Err(Unread::More),
            }
            here = end + 2;
        }
    } else {
        // An inline command: words on one line.
        let line = line(bytes, &mut here)?;
        let words = line.split(|byte| *byte == b' ').map(<[u8]>::to_vec);
        request.extend(words.filter(|word| !word.is_empty()));
    }
    *at = here;
    Ok(request)
}

fn count(bytes: &[u8], at: &mut usize, sign: u8) -> Result<usize, Unread> {
    let line = line(bytes, at)?;
    let number = match line.split_first() {
        Some((first, number)) if *first == sign => number,
        _ => return Err(Unread::Wrong("expected '$'")),
    };
    let number = std::str::from_utf8(number).ok();
    number
        .and_then(|number| number.parse().ok())
        .ok_or(Unread::Wrong("invalid length"))
}

fn line<'b>(bytes: &'b [u8], at: &mut usize) -> Result<&'b [u8], Unread> {
    let rest = &bytes[*at..];
    let end = rest.iter().position(|byte| *byte == b'\n');
    let line = &rest[..end.ok_or(Unread::More)?];
    *at += line.len() + 1;
    Ok(line.strip_suffix(b"\r").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_from_any_pieces() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\nPING\r\n*1\r\n$0\r\n\r\n";
        let mut at = 0;
        let mut read = Vec::new();
        for end in 0..=bytes.len() {
            while let Ok(request) = next(&bytes[..end], &mut at) {
                read.push(request);
            }
        }
        let words = |words: &[&str]| -> Vec<Vec<u8>> {
            words.iter().map(|word| word.as_bytes().to_vec()).collect()
        };
        assert_eq!(
            read,
            [words(&["GET", "a\r\nb"]), words(&["PING"]), words(&[""])]
        );
        assert_eq!(at, bytes.len());
        for wrong in ["*1\r\n+a\r\n", "*x\r\n", "*1\r\n$1\r\nabc"] {
            let read = next(wrong.as_bytes(), &mut 0);
            assert!(matches!(read, Err(Unread::Wrong(_))), "{wrong:?}");
        }
    }
}
