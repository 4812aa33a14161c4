//! Header fields as positions in the buffer that holds the head. Nothing is copied.

pub use crate::syntax::field::Meaning;

/// A part of a head, by position. Heads are shorter than 4 GiB (`limits`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

/// One header field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: Span,
    pub value: Span,
    /// Whether the line is forwarded as it is.
    pub keep: bool,
}

impl Span {
    /// Where `part` lies in `whole`, which it must be a part of.
    pub fn of(whole: &[u8], part: &[u8]) -> Self {
        let start = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        debug_assert!(start + part.len() <= whole.len());
        Self::new(start, start + part.len())
    }

    /// Positions beyond `u32` cannot occur in a head; they would give an empty span.
    pub fn new(start: usize, end: usize) -> Self {
        match (u32::try_from(start), u32::try_from(end)) {
            (Ok(start), Ok(end)) => Self { start, end },
            _ => Self::default(),
        }
    }

    pub fn start(self) -> usize {
        self.start as usize
    }

    pub fn end(self) -> usize {
        self.end as usize
    }

    /// The bytes at this position of the head; empty where the head is another one.
    pub fn bytes(self, head: &[u8]) -> &[u8] {
        head.get(self.start()..self.end()).unwrap_or_default()
    }

    /// As text; empty where it is none.
    pub fn text(self, head: &[u8]) -> &str {
        str::from_utf8(self.bytes(head)).unwrap_or_default()
    }
}

/// Names and values of the fields that are forwarded.
pub(super) fn kept<'a>(fields: &[Field], head: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let kept = fields.iter().filter(|field| field.keep);
    kept.map(|field| (field.name.bytes(head), field.value.bytes(head)))
}

/// What the client says of where the request comes from.
pub(super) fn claims<'a>(
    fields: &[Field],
    head: &'a [u8],
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
    let all = fields.iter().map(|field| (field.name.bytes(head), field.value.bytes(head)));
    all.filter(|(name, _)| Meaning::of(name) == Meaning::Forwarded)
}

/// The members of a comma-separated list, without white space and without empty members (RFC 9110 section 5.6.1).
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// What the `Connection` fields of a head say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    pub close: bool,
    pub keep_alive: bool,
    pub upgrade: bool,
    n_options: usize,
    /// An option that is none of the above names a field to be removed.
    names_fields: bool,
}

impl Connection {
    /// Takes in one `Connection` value; false when there are too many options.
    #[must_use]
    pub fn add(&mut self, value: &[u8]) -> bool {
        for option in list(value) {
            self.n_options += 1;
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else {
                self.names_fields = true;
            }
        }
        self.n_options <= super::limits::CONNECTION_OPTIONS_MAX
    }

    /// Drops the fields that the options name. What frames and routes the message is not for an option to remove:
    /// `Connection: host` would let the client choose what the server behind sees.
    pub fn drop_named(&self, head: &[u8], fields: &mut [Field]) {
        if !self.names_fields {
            return;
        }
        for at in 0..fields.len() {
            let Some(Field { name, value, .. }) = fields.get(at).copied() else { break };
            if Meaning::of(name.bytes(head)) != Meaning::Connection {
                continue;
            }
            for option in list(value.bytes(head)) {
                for field in fields.iter_mut() {
                    let name = field.name.bytes(head);
                    let is_theirs = matches!(Meaning::of(name), Meaning::EndToEnd | Meaning::Trace);
                    if is_theirs && name.eq_ignore_ascii_case(option) {
                        field.keep = false;
                    }
                }
            }
        }
    }
}
