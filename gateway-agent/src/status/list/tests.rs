use proptest::prelude::*;

use super::*;

pub(in crate::status) fn status(kind: &'static str, number: usize, generation: i64) -> Arc<ObjectStatus> {
    let name = ObjectName::new("a", format!("o{number:05}"));
    Arc::new(ObjectStatus::new(kind, name, generation, Vec::new()))
}

/// Routes with one Gateway before and one ListenerSet behind them.
pub(in crate::status) fn many(n_routes: usize) -> StatusList {
    let routes = (0..n_routes).map(|number| status("HTTPRoute", number, 1));
    routes.chain([status("Gateway", 0, 1), status("ListenerSet", 0, 1)]).collect()
}

/// What becomes of some objects in one step: `None` takes one away.
pub(in crate::status) type Round = Vec<(bool, usize, Option<i64>)>;

pub(in crate::status) fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let change = (any::<bool>(), 0..400_usize, prop::option::of(0..3_i64));
    prop::collection::vec(prop::collection::vec(change, 0..200), 0..12)
}

pub(in crate::status) fn changes(round: Round) -> StatusChanges {
    let change = |(is_route, number, generation): (bool, usize, Option<i64>)| {
        let kind = if is_route { "HTTPRoute" } else { "Gateway" };
        let one = status(kind, number, generation.unwrap_or_default());
        ((kind, one.name.clone()), generation.map(|_| one))
    };
    round.into_iter().map(change).collect()
}

proptest! {
    #[test]
    fn the_list_is_an_ordered_map(rounds in rounds()) {
        let mut list = StatusList::default();
        let mut model = BTreeMap::new();
        for round in rounds {
            let changes = changes(round);
            for (key, status) in changes.clone() {
                match status {
                    Some(status) => drop(model.insert(key, status)),
                    None => drop(model.remove(&key)),
                }
            }
            list.apply(changes);
            prop_assert!(list.iter().eq(model.values()));
            prop_assert!(list.chunks().iter().all(|chunk| (1..=MAX).contains(&chunk.len())));
            for number in 0..400 {
                let key = ("HTTPRoute", status("HTTPRoute", number, 0).name.clone());
                prop_assert_eq!(list.find(key.0, &key.1), model.get(&key));
            }
            for kind in ["Gateway", "HTTPRoute", "GRPCRoute", "TCPRoute"] {
                let expected = model.iter().filter(|((of, _), _)| *of == kind).map(|(_, status)| status);
                prop_assert!(list.of_kind(kind).eq(expected));
            }
        }
    }
}

#[test]
fn a_change_makes_one_chunk_anew() {
    let before = many(10_000);
    let changed = |status: Arc<ObjectStatus>| {
        let mut after = before.clone();
        after.apply(StatusChanges::from([((status.kind, status.name.clone()), Some(status))]));
        let is_new = |chunk: &&Chunk| !before.chunks().iter().any(|old| Arc::ptr_eq(old, chunk));
        after.chunks().iter().filter(is_new).count()
    };
    assert_eq!(changed(status("HTTPRoute", 5_000, 2)), 1);
    // It may have to be cut in two.
    assert!(changed(status("HTTPRoute", 20_000, 1)) <= 2);
}

#[test]
fn statuses_that_come_one_by_one_and_go_leave_no_small_chunks() {
    let mut list = StatusList::default();
    let mut set = |number, is_there: bool| {
        let one = status("HTTPRoute", number, 1);
        list.apply(StatusChanges::from([(("HTTPRoute", one.name.clone()), is_there.then_some(one))]));
        list.chunks().len()
    };
    let grown = (0..2_000).map(|number| set(number, true)).last();
    assert!(grown.unwrap_or_default() <= 2_000 / (MAX / 2) + 1, "{grown:?}");
    let shrunk = (0..2_000).filter(|number| number % 100 != 0).map(|number| set(number, false)).last();
    assert!(shrunk.unwrap_or_default() <= 2, "{shrunk:?}");
}
