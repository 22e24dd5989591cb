//! Bytes in traces, readable.

use std::sync::{Mutex, PoisonError};

type Namer = Box<dyn Fn(&[u8]) -> Option<String> + Send>;
static NAMER: Mutex<Option<Namer>> = Mutex::new(None);

/// Sets the function that describes opaque request arguments in traces.
pub fn name_arguments(namer: impl Fn(&[u8]) -> Option<String> + Send + 'static) {
    *NAMER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(namer));
}

/// The requests in bytes, for a reader.
pub(super) fn requests(bytes: &[u8]) -> String {
    let namer = NAMER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    let mut rest = bytes;
    while !rest.is_empty() && text.len() < 300 {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (line, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
        rest = behind;
        let line = line.trim_ascii_end();
        match line.split_first() {
            Some((b'*', _)) if !text.is_empty() => text.push_str("| "),
            Some((b'*', _)) | None => {}
            Some((b'$', length)) => {
                let length = std::str::from_utf8(length)
                    .ok()
                    .and_then(|it| it.parse().ok());
                let length = length.unwrap_or(0).min(rest.len());
                let (argument, behind) = rest.split_at(length);
                rest = behind.get(2..).unwrap_or_default();
                let named = namer.as_ref().and_then(|namer| namer(argument));
                text += &named.unwrap_or_else(|| shown(argument));
                text.push(' ');
            }
            Some(_) => {
                text += &shown(line);
                text += "… ";
            }
        }
    }
    text.trim_end().to_owned()
}

pub(super) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 90;
    let text = bytes.get(..bytes.len().min(MOST)).unwrap_or_default();
    let text = text.escape_ascii().to_string().replace("\\r\\n", " ");
    if bytes.len() > MOST {
        format!("{}…", text.trim_end())
    } else {
        text.trim_end().to_owned()
    }
}
