//! By what a request is known: its id, and the trace that it belongs to.
//!
//! What clients say counts where they are trusted; trace contexts also where the Gateway's parameters say so. No span
//! is made here, so that what is passed on is passed on as it came. Pure: bytes and random numbers in, values out.

use crate::random::SplitMix64;
use crate::syntax::trace::{self, REQUEST_ID_LEN_MAX, TraceId};

/// Of one request.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    request_id: [u8; REQUEST_ID_LEN_MAX],
    length: usize,
    /// Of a trace context that is passed on.
    trace_id: Option<TraceId>,
    /// What the client says of the request's way to it is believed.
    pub(super) is_trusted: bool,
    /// The answer tells the id.
    pub(super) is_told: bool,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            request_id: [0; REQUEST_ID_LEN_MAX],
            length: 0,
            trace_id: None,
            is_trusted: false,
            is_told: false,
        }
    }
}

/// What of a request's trace context is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Nothing,
    /// `tracestate` is not well-formed, which leaves the other (section 3.3).
    ParentOnly,
    Whole,
}

/// Makes ids: 128 bits of two generators whose seeds the system gave. Two
/// workers, or two agents, do not make the same one; who has seen one can tell the next, so that it is no secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids([SplitMix64; 2]);

impl Ids {
    pub(super) const fn new([one, other]: [u64; 2]) -> Self {
        Self([SplitMix64::new(one), SplitMix64::new(other)])
    }

    /// The next one, in hexadecimal digits.
    fn next(&mut self) -> [u8; 32] {
        let mut digits = [0; 32];
        for (numbers, digits) in self.0.iter_mut().zip(digits.as_chunks_mut::<16>().0) {
            let number = numbers.next();
            for (nth, digit) in digits.iter_mut().enumerate() {
                // Half a byte is below 16.
                let half = u8::try_from(number >> (60 - 4 * nth) & 0xf).unwrap_or(0);
                *digit = if half < 10 { b'0' + half } else { b'a' + half - 10 };
            }
        }
        digits
    }
}

impl Identity {
    /// Known by the id of a trusted client where it gives one and only one, else by a new one. `claimed`: its
    /// `X-Request-Id` fields.
    pub(super) fn set_request_id<'a>(&mut self, mut claimed: impl Iterator<Item = &'a [u8]>, ids: &mut Ids) {
        let claimed = match (self.is_trusted.then(|| claimed.next()).flatten(), claimed.next()) {
            (Some(one), None) if trace::is_request_id(one) => Some(one),
            _ => None,
        };
        let made = ids.next();
        let id = claimed.unwrap_or(&made);
        // No longer than that, see `is_request_id`.
        if let Some(place) = self.request_id.get_mut(..id.len()) {
            place.copy_from_slice(id);
            self.length = id.len();
        }
    }

    /// Takes in the trace context, `parents` and `states`: the values of both fields. `is_believed`: of this client.
    pub(super) fn set_trace<'a>(
        &mut self,
        is_believed: bool,
        mut parents: impl Iterator<Item = &'a [u8]>,
        states: impl Iterator<Item = &'a [u8]>,
    ) -> Kept {
        self.trace_id = None;
        if !is_believed {
            return Kept::Nothing;
        }
        // Of two nobody could tell which is the one.
        let trace_id = match (parents.next(), parents.next()) {
            (Some(one), None) => trace::trace_id(one),
            _ => None,
        };
        if trace_id.is_none() {
            return Kept::Nothing;
        }
        self.trace_id = trace_id;
        if trace::is_state(states) { Kept::Whole } else { Kept::ParentOnly }
    }

    /// A request without a trace context.
    pub(super) fn forget_trace(&mut self) {
        self.trace_id = None;
    }

    pub(super) fn request_id(&self) -> &str {
        // Ids are ASCII.
        self.request_id.get(..self.length).and_then(|id| str::from_utf8(id).ok()).unwrap_or_default()
    }

    pub(super) fn trace_id(&self) -> Option<&TraceId> {
        self.trace_id.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::{Identity, Ids, Kept};

    fn id(is_trusted: bool, claimed: &[&str]) -> String {
        let mut identity = Identity { is_trusted, ..Identity::default() };
        identity.set_request_id(claimed.iter().map(|one| one.as_bytes()), &mut Ids::new([1, 2]));
        identity.request_id().to_owned()
    }

    #[test]
    fn id_of_a_trusted_client_is_kept_and_any_other_is_made() {
        let made = id(false, &[]);
        assert!(
            made.len() == 32 && made.bytes().all(|one| matches!(one, b'0'..=b'9' | b'a'..=b'f')),
            "{made}"
        );
        assert_eq!(id(true, &["a-b.c"]), "a-b.c");
        for (is_trusted, claimed) in
            [(false, &["a-b.c"][..]), (true, &[]), (true, &["a", "a"]), (true, &["a b"]), (true, &[""])]
        {
            assert_eq!(id(is_trusted, claimed), made, "{claimed:?}");
        }
    }

    #[test]
    fn made_ids_differ() {
        let mut ids = Ids::new([7, 7 << 9]);
        let made: std::collections::BTreeSet<_> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(made.len(), 10_000);
    }

    #[test]
    fn trace_context_is_kept_whole_in_part_or_not_at_all() {
        const PARENT: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        type Values = &'static [&'static [u8]];
        let cases: [(bool, Values, Values, Kept); 7] = [
            (true, &[PARENT], &[b"a=1"], Kept::Whole),
            (true, &[PARENT], &[], Kept::Whole),
            (false, &[PARENT], &[b"a=1"], Kept::Nothing),
            (true, &[PARENT], &[b"a"], Kept::ParentOnly),
            (true, &[PARENT, PARENT], &[b"a=1"], Kept::Nothing),
            (true, &[b"00-0-0-0"], &[b"a=1"], Kept::Nothing),
            (true, &[], &[b"a=1"], Kept::Nothing),
        ];
        for (is_believed, parents, states, expected) in cases {
            let mut identity = Identity::default();
            let kept = identity.set_trace(is_believed, parents.iter().copied(), states.iter().copied());
            assert_eq!(kept, expected, "{parents:?} {states:?}");
            assert_eq!(identity.trace_id().is_some(), expected != Kept::Nothing);
        }
    }
}
