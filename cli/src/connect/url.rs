//! URLs and credentials.

use std::path::PathBuf;

use redlatch::Builder;

use super::access::with_password_file;
use crate::errors::Failure;

/// The user and the password, if they are given outside of the URLs.
pub(super) struct Credentials {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// The file with the password, which may change.
    pub(super) file: Option<PathBuf>,
}

/// Splits a URL into the scheme with `://`, the user with the password, and the rest.
fn parts(url: &str) -> Option<(&str, Option<&str>, &str)> {
    let at = url.find("://")? + 3;
    let (scheme, rest) = url.split_at(at);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest.get(..end)?.rfind('@') {
        Some(at) => Some((scheme, rest.get(..at), rest.get(at + 1..)?)),
        None => Some((scheme, None, rest)),
    }
}

/// Returns the host and the path of a URL, without user, password and options.
pub(super) fn address(url: &str) -> &str {
    let rest = parts(url).map_or("", |(_, _, rest)| rest);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default().trim_end_matches('/')
}

pub(super) fn has_password(url: &str) -> bool {
    let in_front = |user: &str| user.split_once(':').is_some_and(|(_, it)| !it.is_empty());
    let behind = url.split_once('?').is_some_and(|(_, query)| {
        query
            .split('&')
            .any(|pair| pair.strip_prefix("pass=").is_some_and(|it| !it.is_empty()))
    });
    // An unescaped password may hide the `@` from `parts`.
    let is_odd = url.contains('@') && parts(url).is_none_or(|(_, user, _)| user.is_none());
    behind
        || is_odd
        || parts(url)
            .and_then(|(_, user, _)| user)
            .is_some_and(in_front)
}

impl Credentials {
    pub(super) fn add_to_master(&self, builder: Builder) -> Builder {
        let user = self.user.clone().unwrap_or_default();
        match (&self.file, &self.password) {
            (Some(file), _) => with_password_file(builder, user, file),
            (None, Some(password)) => builder.credentials(user, password),
            (None, None) => builder,
        }
    }

    /// Adds credentials from a file to the builder, and all others to the URL.
    pub(super) fn add_to(&self, builder: Builder, url: &str) -> Result<(Builder, String), Failure> {
        let file = self.file.as_ref();
        let file = file.filter(|_| !has_password(url) && !url.starts_with("mysql"));
        let (Some(file), Some((scheme, own_user, rest))) = (file, parts(url)) else {
            return Ok((builder, self.add_to_url(url)?));
        };
        let own_user = own_user.map(|user| percent_decode(user.trim_end_matches(':')));
        let user = self.user.clone().or(own_user).unwrap_or_default();
        Ok((
            with_password_file(builder, user, file),
            format!("{scheme}{rest}"),
        ))
    }

    /// The servers share the user of the first URL.
    pub(super) fn add_to_all(
        &self,
        mut builder: Builder,
        urls: &[String],
    ) -> Result<(Builder, Vec<String>), Failure> {
        if urls.iter().any(|url| has_password(url)) {
            let urls: Result<_, _> = urls.iter().map(|url| self.add_to_url(url)).collect();
            return Ok((builder, urls?));
        }
        let mut with_credentials = Vec::with_capacity(urls.len());
        for url in urls.iter().rev() {
            let (next, url) = self.add_to(builder, url)?;
            builder = next;
            with_credentials.push(url);
        }
        with_credentials.reverse();
        Ok((builder, with_credentials))
    }

    pub(super) fn add_to_url(&self, url: &str) -> Result<String, Failure> {
        let Some(password) = self.password.as_deref() else {
            return match &self.user {
                Some(_) => Err(Failure::usage(
                    "a user was given without a password; set REDLATCH_PASSWORD or --password-file",
                )),
                None => Ok(url.to_owned()),
            };
        };
        // The library reports what is wrong with this URL.
        let Some((scheme, user, rest)) = parts(url) else {
            return Ok(url.to_owned());
        };
        if has_password(url) {
            return Ok(url.to_owned());
        }
        let own_user = user.map(|user| user.trim_end_matches(':').to_owned());
        let user = self
            .user
            .as_deref()
            .map(percent_encode)
            .or(own_user)
            .unwrap_or_default();
        let password = percent_encode(password);
        if scheme.contains("unix") {
            let sign = if rest.contains('?') { '&' } else { '?' };
            let user = if user.is_empty() {
                user
            } else {
                format!("user={user}&")
            };
            return Ok(format!("{scheme}{rest}{sign}{user}pass={password}"));
        }
        Ok(format!("{scheme}{user}:{password}@{rest}"))
    }
}

/// Whether a network carries the traffic to this server in plain text.
pub(super) fn is_exposed(url: &str) -> bool {
    let is_socket = url.contains("+unix://") || url.contains("socket=");
    let host_and_port = address(url).split('/').next().unwrap_or_default();
    let host = match host_and_port.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|sign| sign.is_ascii_digit()) => host,
        _ => host_and_port,
    };
    let host = host.trim_matches(['[', ']']);
    let ip = host.parse::<std::net::IpAddr>();
    let is_here = ip.map_or(host.eq_ignore_ascii_case("localhost"), |it| {
        it.is_loopback()
    });
    !uses_tls(url) && !is_socket && !is_here
}

pub(super) fn uses_tls(url: &str) -> bool {
    let scheme = url.split(':').next().unwrap_or_default();
    ["rediss", "valkeys", "mysqls"]
        .iter()
        .any(|it| scheme.eq_ignore_ascii_case(it))
}

fn percent_decode(part: &str) -> String {
    let mut pieces = part.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let code = piece
            .get(..2)
            .and_then(|it| u8::from_str_radix(it, 16).ok());
        match code {
            Some(code) => {
                bytes.push(code);
                bytes.extend(piece.bytes().skip(2));
            }
            None => {
                bytes.push(b'%');
                bytes.extend(piece.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn percent_encode(text: &str) -> String {
    let mut percent_encode = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => percent_encode.push(char::from(byte)),
            false => percent_encode.push_str(&format!("%{byte:02X}")),
        }
    }
    percent_encode
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_detected() {
        for url in [
            "redis://:secret@h",
            "redis://user:secret@h:1/0",
            "mysql://app:p%40ss@h/shop",
            "redis+unix:///run/r.sock?pass=secret",
            "redis+unix:///run/r.sock?db=1&pass=secret",
            "redis://:sec/ret@h",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "redis://h",
            "redis://user@h",
            "redis://user:@h",
            "redis+unix:///run/r.sock?db=1",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn an_address_contains_no_secret() {
        assert_eq!(address("redis://user:p@ss@h:1/2?x=y"), "h:1/2");
        assert_eq!(address("rediss://h:1/"), "h:1");
        assert_eq!(
            address("redis+unix:///run/r.sock?pass=secret"),
            "/run/r.sock"
        );
        assert_eq!(address("secret"), "");
    }

    #[test]
    fn plain_text_to_another_machine_is_reported() {
        for url in [
            "redis://h",
            "redis://u:p@10.0.0.1:6379/1",
            "valkey://h:1",
            "mysql://u@h/d",
            "redis://[fd00::1]:6379",
        ] {
            assert!(is_exposed(url), "{url}");
        }
        for url in [
            "rediss://h",
            "mysqls://u:p@h/d",
            "redis://localhost:1",
            "redis://u:p@127.0.0.1",
            "redis://[::1]:6379",
            "redis+unix:///run/r.sock",
            "mysql://u@h/d?socket=/run/m.sock",
        ] {
            assert!(!is_exposed(url), "{url}");
        }
    }

    #[test]
    fn percent_decoding_reverses_encoding() {
        for user in ["app", "a@b", "ü:%", "100%"] {
            assert_eq!(percent_decode(&percent_encode(user)), user);
        }
        assert_eq!(percent_decode("100%x"), "100%x");
    }

    #[test]
    fn credentials_are_added_to_urls() {
        let put = |user: Option<&str>, url: &str| {
            let secrets = Credentials {
                user: user.map(str::to_owned),
                password: Some("p@s/s".to_owned()),
                file: None,
            };
            secrets
                .add_to_url(url)
                .unwrap_or_else(|error| panic!("{error}"))
        };
        assert_eq!(put(None, "redis://h:1/2"), "redis://:p%40s%2Fs@h:1/2");
        assert_eq!(put(Some("me"), "rediss://h"), "rediss://me:p%40s%2Fs@h");
        assert_eq!(
            put(None, "mysql://app@h/shop"),
            "mysql://app:p%40s%2Fs@h/shop"
        );
        assert_eq!(
            put(Some("me"), "redis+unix:///r.sock?db=1"),
            "redis+unix:///r.sock?db=1&user=me&pass=p%40s%2Fs"
        );
        assert_eq!(put(None, "redis://:own@h"), "redis://:own@h");
    }
}
