//! Just enough HTTP/1.1 to be the peer of a proxy under test: reads one message at a time, exactly.
//!
//! Not tolerant, and no client for real use: a malformed message is an error that names the bytes.

use std::io::{Read, Write};

use anyhow::{Context as _, Result, bail};

/// Larger than any head that a test sends or expects.
const MAX_HEAD: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The head as it came, with the empty line.
    pub raw_head: String,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub raw_head: String,
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Reads more; false at the end of the stream.
fn fill(stream: &mut impl Read, buffered: &mut Vec<u8>) -> Result<bool> {
    let mut chunk = [0; 16 * 1024];
    let count = stream.read(&mut chunk)?;
    buffered.extend_from_slice(&chunk[..count]);
    Ok(count > 0)
}

/// The head up to and with the empty line; `None` when the stream ends before the first byte.
fn read_head(stream: &mut impl Read, buffered: &mut Vec<u8>) -> Result<Option<String>> {
    loop {
        if let Some(end) = buffered.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = buffered.drain(..end + 4).collect();
            return Ok(Some(String::from_utf8(head).context("head is not UTF-8")?));
        }
        if buffered.len() > MAX_HEAD {
            bail!("head of more than {MAX_HEAD} bytes");
        }
        if !fill(stream, buffered)? {
            if buffered.is_empty() {
                return Ok(None);
            }
            bail!("stream ended within a head: {:?}", String::from_utf8_lossy(buffered));
        }
    }
}

fn parse_headers(head: &str) -> Result<Vec<(String, String)>> {
    head.split("\r\n")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| {
            let (name, value) = line.split_once(':').with_context(|| format!("bad header line {line:?}"))?;
            Ok((name.to_owned(), value.trim().to_owned()))
        })
        .collect()
}

fn read_exactly(stream: &mut impl Read, buffered: &mut Vec<u8>, length: usize) -> Result<Vec<u8>> {
    while buffered.len() < length {
        if !fill(stream, buffered)? {
            bail!("stream ended after {} of {length} bytes of body", buffered.len());
        }
    }
    Ok(buffered.drain(..length).collect())
}

fn read_line(stream: &mut impl Read, buffered: &mut Vec<u8>) -> Result<String> {
    loop {
        if let Some(end) = buffered.windows(2).position(|window| window == b"\r\n") {
            let line: Vec<u8> = buffered.drain(..end + 2).take(end).collect();
            return Ok(String::from_utf8(line)?);
        }
        if !fill(stream, buffered)? {
            bail!("stream ended within a chunk line");
        }
    }
}

fn read_chunked(stream: &mut impl Read, buffered: &mut Vec<u8>) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(stream, buffered)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).with_context(|| format!("chunk size {line:?}"))?;
        if size == 0 {
            while !read_line(stream, buffered)?.is_empty() {}
            return Ok(body);
        }
        body.extend(read_exactly(stream, buffered, size)?);
        if !read_line(stream, buffered)?.is_empty() {
            bail!("chunk is longer than its size says");
        }
    }
}

fn is_chunked(headers: &[(String, String)]) -> bool {
    find(headers, "transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().ends_with("chunked"))
}

fn content_length(headers: &[(String, String)]) -> Result<Option<usize>> {
    find(headers, "content-length").map(|value| value.parse().context("content-length")).transpose()
}

/// One request; `None` when the client is done.
pub fn read_request(stream: &mut impl Read, buffered: &mut Vec<u8>) -> Result<Option<Request>> {
    let Some(raw_head) = read_head(stream, buffered)? else { return Ok(None) };
    let mut first = raw_head.split("\r\n").next().unwrap_or_default().split(' ');
    let (method, target) =
        (first.next().unwrap_or_default().to_owned(), first.next().unwrap_or_default().to_owned());
    let headers = parse_headers(&raw_head)?;
    let body = if is_chunked(&headers) {
        read_chunked(stream, buffered)?
    } else {
        read_exactly(stream, buffered, content_length(&headers)?.unwrap_or(0))?
    };
    Ok(Some(Request { method, target, headers, body, raw_head }))
}

/// One response to a request that was not HEAD; informational ones are skipped.
pub fn read_response(stream: &mut impl Read, buffered: &mut Vec<u8>) -> Result<Response> {
    loop {
        let raw_head = read_head(stream, buffered)?.context("connection ended without a response")?;
        let status: u16 = raw_head
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.get(2..5))
            .and_then(|code| code.parse().ok())
            .with_context(|| format!("bad status line in {raw_head:?}"))?;
        let headers = parse_headers(&raw_head)?;
        if (100..200).contains(&status) && status != 101 {
            continue;
        }
        let body = if status == 204 || status == 304 || status == 101 {
            Vec::new()
        } else if is_chunked(&headers) {
            read_chunked(stream, buffered)?
        } else if let Some(length) = content_length(&headers)? {
            read_exactly(stream, buffered, length)?
        } else {
            while fill(stream, buffered)? {}
            std::mem::take(buffered)
        };
        return Ok(Response { status, headers, body, raw_head });
    }
}

/// Sends `request` as it is and reads one response.
pub fn exchange(stream: &mut (impl Read + Write), request: &[u8]) -> Result<Response> {
    stream.write_all(request).context("send the request")?;
    read_response(stream, &mut Vec::new())
}
