//! Where rate limits keep their state: a table with a hard bound.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState},
    marker::PhantomData,
    sync::{Mutex, MutexGuard, PoisonError},
};

use governor::{
    nanos::Nanos,
    state::{StateStore, keyed::ShrinkableKeyedStateStore},
};

/// Parts that are locked apart, so that threads seldom meet.
const SHARDS: usize = 64;

/// State by key, at most so many keys. Once a part is full, the keys it does not know share one state.
///
/// A key is kept as its 64-bit hash under a secret of the process: nobody can choose keys that meet in one part, and
/// an entry is 16 bytes, whatever the key. Two keys of a full table share a hash with a probability below 10^-9.
pub(super) struct BoundedTable<K> {
    secret: RandomState,
    shards: Box<[Mutex<Shard>]>,
    shard_max: usize,
    key: PhantomData<fn(&K)>,
}

#[derive(Default)]
struct Shard {
    known: HashMap<u64, Nanos, BuildHasherDefault<AsItIs>>,
    unknown: Option<Nanos>,
}

/// The keys are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl<K> BoundedTable<K> {
    /// A table of at most about `keys_max` keys.
    pub(super) fn new(keys_max: usize) -> Self {
        Self {
            secret: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_max: keys_max.div_ceil(SHARDS),
            key: PhantomData,
        }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // Neither the highest bits nor the lowest ones: the map inside uses those.
        let index = usize::try_from((hash >> 32) % SHARDS as u64).unwrap_or(0);
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash> StateStore for BoundedTable<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let hash = self.secret.hash_one(key);
        let mut shard = self.shard(hash);
        let Shard { known, unknown } = &mut *shard;
        if let Some(state) = known.get_mut(&hash) {
            let (answer, next) = decide(Some(*state))?;
            *state = next;
            return Ok(answer);
        }
        if known.len() >= self.shard_max {
            let (answer, next) = decide(*unknown)?;
            *unknown = Some(next);
            return Ok(answer);
        }
        let (answer, next) = decide(None)?;
        known.insert(hash, next);
        Ok(answer)
    }
}

impl<K: Hash + Eq + Clone> ShrinkableKeyedStateStore<K> for BoundedTable<K> {
    fn retain_recent(&self, drop_below: Nanos) {
        for shard in &self.shards {
            let known = &mut shard.lock().unwrap_or_else(PoisonError::into_inner).known;
            known.retain(|_, state| *state > drop_below);
            if known.capacity() > 4 * known.len() + 64 {
                known.shrink_to(2 * known.len());
            }
        }
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).known.len()).sum()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
