//! Requests for metrics: the small part of HTTP/1.1 (RFC 9112) that a scraper uses. Each connection has one request.

use super::token;
use std::net::IpAddr;

/// Bytes of the longest request line and header section together.
pub const LONGEST: usize = 8 << 10;
/// Most header lines.
const MOST_HEADERS: usize = 64;

/// A request, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    pub is_head: bool,
    pub path: &'a [u8],
    host: Option<&'a [u8]>,
    authorization: Option<&'a [u8]>,
}

/// Reason why a request is refused: its status code and words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub u16, pub &'static str);

const MALFORMED: Refused = Refused(400, "Bad Request");
const FORBIDDEN: Refused = Refused(403, "Forbidden");
pub const NOT_FOUND: Refused = Refused(404, "Not Found");
const TOO_LARGE: Refused = Refused(431, "Request Header Fields Too Large");

/// Reads a request from the bytes that have arrived. Returns `None` while its end is missing.
///
/// # Errors
/// [`Refused`] if the bytes cannot become a request that is served.
pub fn parse(bytes: &[u8]) -> Result<Option<Request<'_>>, Refused> {
    let whole = bytes.windows(4).position(|w| w == b"\r\n\r\n");
    let Some(end) = whole.filter(|end| end + 4 <= LONGEST) else {
        // Nonsense is refused when its first line ends, not when it has become too large.
        let is_line = bytes.windows(2).position(|w| w == b"\r\n");
        if let Some(line) = is_line {
            request_line(&bytes[..line])?;
        }
        return if whole.is_some() || bytes.len() >= LONGEST { Err(TOO_LARGE) } else { Ok(None) };
    };
    let mut lines = Lines(Some(&bytes[..end]));
    let (is_head, path) = request_line(lines.next().unwrap_or_default())?;
    let mut request = Request { is_head, path, host: None, authorization: None };
    for (i, line) in lines.enumerate() {
        if i == MOST_HEADERS {
            return Err(TOO_LARGE);
        }
        let colon = line.iter().position(|b| *b == b':').ok_or(MALFORMED)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty()
            || !name.iter().all(|b| is_token(*b))
            || value.iter().any(|b| b.is_ascii_control() && *b != b'\t')
        {
            return Err(MALFORMED);
        }
        let slot = if name.eq_ignore_ascii_case(b"host") {
            &mut request.host
        } else if name.eq_ignore_ascii_case(b"authorization") {
            &mut request.authorization
        } else {
            continue;
        };
        if slot.replace(value).is_some() {
            return Err(MALFORMED);
        }
    }
    Ok(Some(request))
}

/// Lines that end with CR LF, or with the text.
struct Lines<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        let end = rest.windows(2).position(|w| w == b"\r\n");
        self.0 = end.map(|end| &rest[end + 2..]);
        Some(end.map_or(rest, |end| &rest[..end]))
    }
}

fn request_line(line: &[u8]) -> Result<(bool, &[u8]), Refused> {
    let mut words = line.split(|b| *b == b' ');
    let (Some(method), Some(path), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(MALFORMED);
    };
    if method.is_empty() || !method.iter().all(|b| is_token(*b)) || !path.iter().all(u8::is_ascii_graphic) {
        return Err(MALFORMED);
    }
    match version {
        b"HTTP/1.1" | b"HTTP/1.0" => {}
        _ if version.starts_with(b"HTTP/") => return Err(Refused(505, "HTTP Version Not Supported")),
        _ => return Err(MALFORMED),
    }
    let is_head = match method {
        b"GET" => false,
        b"HEAD" => true,
        _ => return Err(Refused(405, "Method Not Allowed")),
    };
    // A query has no meaning here.
    Ok((is_head, path.split(|b| *b == b'?').next().unwrap_or_default()))
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

impl Request<'_> {
    /// Checks that the request may read the metrics: with the token if there is one. Without one the host must be named by its
    /// address or as localhost, since a web page could have given another name to a loopback address.
    ///
    /// # Errors
    /// [`Refused`] with status 401 or 403.
    pub fn authorize(&self, expected: Option<&[u8]>) -> Result<(), Refused> {
        let Some(expected) = expected else {
            return if self.host.is_none_or(is_own) { Ok(()) } else { Err(FORBIDDEN) };
        };
        let given = self.authorization.and_then(|a| {
            let (scheme, token) = a.split_at_checked(b"Bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
        });
        match given {
            Some(given) if token::is_equal(expected, given) => Ok(()),
            _ => Err(Refused(401, "Unauthorized")),
        }
    }
}

/// Returns true for `localhost` and for addresses, with or without a port.
fn is_own(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(']') => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// Returns the response to a request: head, and body unless only the head is wanted.
pub fn response(Refused(status, words): Refused, kind: &str, body: &str, is_head: bool) -> Vec<u8> {
    let more = match status {
        401 => "WWW-Authenticate: Bearer\r\n",
        405 => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} {words}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n{more}Connection: close\r\n\r\n"
    );
    [head.as_bytes(), if is_head { b"" } else { body.as_bytes() }].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_read() {
        let text =
            b"GET /metrics?a=b HTTP/1.1\r\nHost: localhost:9464\r\naccept: */*\r\nAuthorization:  bearer 0123 \r\n\r\n";
        let request = parse(text).unwrap().unwrap();
        assert_eq!((request.path, request.is_head), (&b"/metrics"[..], false));
        assert_eq!(request.authorize(Some(b"0123")), Ok(()));
        assert_eq!(request.authorize(None), Ok(()));
        for wrong in [&b"012"[..], b"01234", b"xxxx"] {
            assert_eq!(request.authorize(Some(wrong)), Err(Refused(401, "Unauthorized")));
        }
        assert!((0..text.len()).all(|n| parse(&text[..n]) == Ok(None)));
        assert!(parse(b"HEAD / HTTP/1.0\r\n\r\n").unwrap().unwrap().is_head);
    }

    #[test]
    fn other_requests_are_refused() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MOST_HEADERS + 1));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(LONGEST));
        for (text, status) in [
            ("POST / HTTP/1.1\r\n", 405),
            ("GET / HTTP/2.0\r\n", 505),
            ("GET /\r\n", 400),
            ("GET  / HTTP/1.1\r\n", 400),
            ("\x16\x03\x01\r\n", 400),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\na: \0\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\na: x\ny\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400),
            (&many, 431),
            (&long, 431),
            (&"x".repeat(LONGEST), 431),
        ] {
            assert_eq!(parse(text.as_bytes()).map_err(|r| r.0), Err(status), "{text:.60}");
        }
    }

    #[test]
    fn a_page_that_renames_a_loopback_address_reads_nothing() {
        let with = |host: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            parse(text.as_bytes()).unwrap().unwrap().authorize(None)
        };
        assert!(["localhost", "LOCALHOST:1", "127.0.0.1:9464", "[::1]:1", "[::1]"].iter().all(|h| with(h).is_ok()));
        assert!(
            ["evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example"]
                .iter()
                .all(|h| with(h) == Err(FORBIDDEN))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_refused_or_wait_for_more(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..600),
                "(GET|PUT|HEAD) [/a-z?]{0,9}( HTTP/1.[01])?(\r\n|\n|\r)([A-Za-z:, \t]{0,30}(\r\n|\n)){0,5}\r\n".prop_map(String::into_bytes),
                proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b' '), Just(b':'), Just(b'G')], 0..9000),
            ],
            cut in any::<proptest::sample::Index>(),
        ) {
            let all = parse(&bytes);
            prop_assert!(bytes.len() < LONGEST || all != Ok(None));
            // A whole request stays the same when more arrives.
            let part = parse(&bytes[..cut.index(bytes.len() + 1)]);
            if let Ok(Some(request)) = &part {
                prop_assert_eq!(all.as_ref().unwrap().as_ref(), Some(request));
            }
            if let Ok(Some(request)) = &all {
                prop_assert!(request.path.iter().all(u8::is_ascii_graphic));
            }
        }
    }
}
