//! A hash map from names whose versions share all that they have in common.
//!
//! Snapshots follow each other with one host changed among thousands: a change copies one leaf and the branches above
//! it (a few hundred bytes), a clone one pointer, and comparing two versions looks only where they differ. It is a hash
//! trie: 16 children a branch, chosen by four bits of the hash each; names end in leaves of up to 16, where a
//! look at 16 hashes side by side costs less than further branches would. A subtree is a leaf if and only if it is
//! small enough, so that equal contents have equal shapes, whatever they went through.
//!
//! **Invariant:** does not know what the names mean.

use std::hash::Hasher as _;
use std::sync::Arc;

use rustc_hash::FxHasher;

/// Bits of the hash that choose a child.
const BITS: u32 = 4;
const FANOUT: usize = 1 << BITS;
/// More entries make a branch, as long as there are bits of the hash left.
const LEAF_MAX: usize = 16;

#[derive(Clone, Debug)]
pub struct SharedMap<T> {
    root: Node<T>,
}

#[derive(Clone, Debug)]
enum Node<T> {
    /// Sorted by hash and key, and behind one pointer: among many names each one more is a miss of the caches.
    Leaf(Arc<[Entry<T>]>),
    Branch(Arc<Branch<T>>),
}

#[derive(Clone, Debug)]
struct Branch<T> {
    /// Entries below.
    len: usize,
    children: [Node<T>; FANOUT],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry<T> {
    hash: u64,
    key: Arc<str>,
    value: T,
}

/// Entries in no particular order.
#[derive(Debug)]
pub struct Iter<'a, T> {
    nodes: Vec<std::slice::Iter<'a, Node<T>>>,
    entries: std::slice::Iter<'a, Entry<T>>,
}

// === impl SharedMap ===

impl<T> Default for SharedMap<T> {
    fn default() -> Self {
        Self { root: Node::default() }
    }
}

impl<T> SharedMap<T> {
    pub fn get(&self, key: &str) -> Option<&T> {
        let hash = hash(key);
        let mut node = &self.root;
        let mut rest = hash;
        loop {
            match node {
                Node::Leaf(entries) => {
                    let mut found = entries.iter().filter(|entry| entry.hash == hash);
                    return found.find(|entry| &*entry.key == key).map(|entry| &entry.value);
                }
                Node::Branch(branch) => {
                    node = branch.child(rest);
                    rest >>= BITS;
                }
            }
        }
    }

    pub fn len(&self) -> usize {
        self.root.len()
    }

    pub fn is_empty(&self) -> bool {
        // So small a branch would be a leaf.
        matches!(&self.root, Node::Leaf(entries) if entries.is_empty())
    }

    pub fn iter(&self) -> Iter<'_, T> {
        Iter { nodes: vec![std::slice::from_ref(&self.root).iter()], entries: [].iter() }
    }
}

impl<T: Clone> SharedMap<T> {
    /// Returns the value that this one replaces.
    pub fn insert(&mut self, key: impl Into<Arc<str>>, value: T) -> Option<T> {
        let key = key.into();
        self.root.insert(0, Entry { hash: hash(&key), key, value })
    }

    pub fn remove(&mut self, key: &str) -> Option<T> {
        // Before anything is copied.
        self.get(key)?;
        self.root.remove(hash(key), hash(key), key)
    }
}

impl<T: PartialEq> PartialEq for SharedMap<T> {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl<T: Eq> Eq for SharedMap<T> {}

// === impl Node ===

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self::Leaf(Arc::default())
    }
}

impl<T> Node<T> {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Branch(branch) => branch.len,
        }
    }
}

impl<T: Clone> Node<T> {
    /// `shift`: bits of the hash that the branches above have used.
    fn insert(&mut self, shift: u32, entry: Entry<T>) -> Option<T> {
        match self {
            Self::Leaf(entries) => {
                let position = match position(entries, entry.hash, &entry.key) {
                    Ok(position) => {
                        let present = Arc::make_mut(entries).get_mut(position)?;
                        return Some(std::mem::replace(&mut present.value, entry.value));
                    }
                    Err(position) => position,
                };
                if entries.len() < LEAF_MAX || shift >= u64::BITS {
                    let (before, behind) = entries.split_at(position);
                    *entries = before.iter().cloned().chain([entry]).chain(behind.iter().cloned()).collect();
                    return None;
                }
                let mut branch = Branch { len: 0, children: std::array::from_fn(|_| Self::default()) };
                for entry in entries.iter().cloned().chain([entry]) {
                    branch.insert(shift, entry);
                }
                *self = Self::Branch(Arc::new(branch));
                None
            }
            Self::Branch(branch) => Arc::make_mut(branch).insert(shift, entry),
        }
    }

    /// `rest`: what of the hash the branches above have not used. The key is there.
    fn remove(&mut self, rest: u64, hash: u64, key: &str) -> Option<T> {
        match self {
            Self::Leaf(entries) => {
                let position = position(entries, hash, key).ok()?;
                let removed = entries.get(position)?.value.clone();
                let (before, behind) = entries.split_at(position);
                *entries = before.iter().chain(&behind[1..]).cloned().collect();
                Some(removed)
            }
            Self::Branch(branch) => {
                let branch = Arc::make_mut(branch);
                let removed = branch.child_mut(rest).remove(rest >> BITS, hash, key)?;
                branch.len -= 1;
                if branch.len <= LEAF_MAX {
                    let mut entries = Vec::with_capacity(branch.len);
                    for child in &branch.children {
                        // No child of a branch this small is one.
                        if let Self::Leaf(some) = child {
                            entries.extend(some.iter().cloned());
                        }
                    }
                    entries
                        .sort_unstable_by(|one, other| (one.hash, &one.key).cmp(&(other.hash, &other.key)));
                    *self = Self::Leaf(entries.into());
                }
                Some(removed)
            }
        }
    }
}

impl<T: PartialEq> PartialEq for Node<T> {
    /// What is shared is equal without a look.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leaf(one), Self::Leaf(other)) => Arc::ptr_eq(one, other) || **one == **other,
            (Self::Branch(one), Self::Branch(other)) => {
                Arc::ptr_eq(one, other) || (one.len == other.len && one.children == other.children)
            }
            _ => false,
        }
    }
}

// === impl Branch ===

impl<T> Branch<T> {
    /// The child for the lowest bits of `rest`.
    const fn child(&self, rest: u64) -> &Node<T> {
        &self.children[rest as usize % FANOUT]
    }

    const fn child_mut(&mut self, rest: u64) -> &mut Node<T> {
        &mut self.children[rest as usize % FANOUT]
    }
}

impl<T: Clone> Branch<T> {
    fn insert(&mut self, shift: u32, entry: Entry<T>) -> Option<T> {
        let replaced = self.child_mut(entry.hash >> shift).insert(shift + BITS, entry);
        if replaced.is_none() {
            self.len += 1;
        }
        replaced
    }
}

// === impl Iter ===

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = (&'a Arc<str>, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some((&entry.key, &entry.value));
            }
            match self.nodes.last_mut()?.next() {
                None => drop(self.nodes.pop()),
                Some(Node::Leaf(entries)) => self.entries = entries.iter(),
                Some(Node::Branch(branch)) => self.nodes.push(branch.children.iter()),
            }
        }
    }
}

fn hash(key: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(key.as_bytes());
    hasher.finish()
}

fn position<T>(entries: &[Entry<T>], hash: u64, key: &str) -> Result<usize, usize> {
    entries.binary_search_by(|entry| (entry.hash, &*entry.key).cmp(&(hash, key)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::{Node, SharedMap};

    fn map(n: u32) -> SharedMap<u32> {
        let mut map = SharedMap::default();
        for value in 0..n {
            map.insert(format!("host-{value}.example.com"), value);
        }
        map
    }

    /// Nodes of `one` that are not those of `other`.
    fn n_new<T>(one: &Node<T>, other: &Node<T>) -> usize {
        match (one, other) {
            (Node::Leaf(one), Node::Leaf(other)) => usize::from(!Arc::ptr_eq(one, other)),
            (Node::Branch(one), Node::Branch(other)) if Arc::ptr_eq(one, other) => 0,
            (Node::Branch(one), Node::Branch(other)) => {
                let children = one.children.iter().zip(&other.children);
                1 + children.map(|(one, other)| n_new(one, other)).sum::<usize>()
            }
            (Node::Leaf(_) | Node::Branch(_), _) => 1,
        }
    }

    #[test]
    fn version_with_one_change_shares_the_rest() {
        let before = map(3_000);
        let mut after = before.clone();
        after.insert("host-7.example.com", 0);
        assert_eq!((before.get("host-7.example.com"), after.get("host-7.example.com")), (Some(&7), Some(&0)));
        assert!(n_new(&after.root, &before.root) <= 5, "{}", n_new(&after.root, &before.root));
        assert_ne!(before, after);
        after.insert("host-7.example.com", 7);
        assert_eq!(before, after);
    }

    #[test]
    fn removal_of_what_is_not_there_copies_nothing() {
        let before = map(100);
        let mut after = before.clone();
        assert_eq!(after.remove("absent"), None);
        assert_eq!(n_new(&after.root, &before.root), 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u8),
        Remove(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (any::<u8>(), any::<u8>()).prop_map(|(key, value)| Step::Insert(key, value)),
            any::<u8>().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_its_shape_depends_on_its_content_only(
            steps in prop::collection::vec(step(), 0..300)
        ) {
            let mut map = SharedMap::default();
            let mut model = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        let replaced = map.insert(key.to_string(), value);
                        prop_assert_eq!(replaced, model.insert(key.to_string(), value));
                    }
                    Step::Remove(key) => {
                        prop_assert_eq!(map.remove(&key.to_string()), model.remove(&key.to_string()));
                    }
                }
            }
            let mut entries: Vec<_> = map.iter().map(|(key, value)| (key.to_string(), *value)).collect();
            entries.sort();
            prop_assert_eq!(&entries, &model.clone().into_iter().collect::<Vec<_>>());
            prop_assert_eq!(map.len(), model.len());
            prop_assert_eq!(map.is_empty(), model.is_empty());
            let mut fresh = SharedMap::default();
            for (key, value) in model {
                fresh.insert(key, value);
            }
            prop_assert_eq!(map, fresh);
        }
    }
}
