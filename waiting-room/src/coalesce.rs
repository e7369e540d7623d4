//! Calls that wait at the same moment travel together.
//!
//! Each lane has at most one call under way; whatever comes meanwhile goes with the next one. A lone call leaves at
//! once, so nothing is slower for it, and the busier a lane is, the more share a call. The call belongs to no caller:
//! one that goes away changes nothing for the others.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::FutureExt as _;
use lockgate_shared::{ids::SaleId, store::StoreError};
use tokio::sync::oneshot;

/// Most items of one call.
pub(crate) const BATCH_MAX: usize = 256;
/// Most items that wait in one lane; what comes beyond is turned away.
const QUEUE_MAX: usize = 4_096;

/// One lane of one sale.
type Lane = (SaleId, u16);

struct Waiting<T, A> {
    item: T,
    answer: oneshot::Sender<Result<A, StoreError>>,
}

/// What waits per lane. A lane is in the map while a call of it is under way, and at no other time.
type Queues<T, A> = HashMap<Lane, VecDeque<Waiting<T, A>>>;

/// The calls of one verb.
pub(crate) struct Coalescer<T, A> {
    verb: &'static str,
    queues: Arc<Mutex<Queues<T, A>>>,
}

impl<T: Send + 'static, A: Send + 'static> Coalescer<T, A> {
    pub(crate) fn new(verb: &'static str) -> Self {
        Self { verb, queues: Arc::default() }
    }

    /// Sends `item` with the next call of the lane and waits for its answer. `call` is asked for only by the first
    /// of those who wait; it takes items in their order and gives one answer for each.
    ///
    /// # Errors
    /// The queue is full, or the call that carried the item failed.
    pub(crate) async fn ride<C, F>(
        &self,
        sale: &SaleId,
        lane: u16,
        item: T,
        call: impl FnOnce() -> C,
    ) -> Result<A, StoreError>
    where
        C: Fn(Vec<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { item, answer };
        match locked(&self.queues).entry((sale.clone(), lane)) {
            hash_map::Entry::Occupied(queue) if queue.get().len() >= QUEUE_MAX => {
                return Err(StoreError::untouched(self.verb, "too many wait for this lane"));
            }
            hash_map::Entry::Occupied(mut queue) => queue.get_mut().push_back(waiting),
            hash_map::Entry::Vacant(lane) => {
                let key = lane.key().clone();
                lane.insert(VecDeque::from([waiting]));
                tokio::spawn(carry(self.verb, Arc::clone(&self.queues), key, call()));
            }
        }
        answered.await.unwrap_or_else(|_| Err(StoreError::unknown(self.verb, "the call was broken off")))
    }
}

fn locked<T, A>(queues: &Mutex<Queues<T, A>>) -> MutexGuard<'_, Queues<T, A>> {
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes calls until nothing waits in the lane.
async fn carry<T, A, C, F>(verb: &'static str, queues: Arc<Mutex<Queues<T, A>>>, lane: Lane, call: C)
where
    C: Fn(Vec<T>) -> F,
    F: Future<Output = Result<Vec<A>, StoreError>>,
{
    // Whoever is ready to run at this moment comes along; when nobody is, this costs nothing.
    tokio::task::yield_now().await;
    while let Some(batch) = next_batch(&queues, &lane) {
        let (items, answers): (Vec<T>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.item, waiting.answer)).unzip();
        let outcome = AssertUnwindSafe(async { call(items).await }).catch_unwind().await;
        let error = match outcome {
            Ok(Ok(given)) if given.len() == answers.len() => {
                for (answer, given) in answers.into_iter().zip(given) {
                    let _ = answer.send(Ok(given));
                }
                continue;
            }
            Ok(Ok(_)) => StoreError::unknown(verb, "not one answer for each item"),
            Ok(Err(error)) => error,
            Err(_) => StoreError::unknown(verb, "the call panicked"),
        };
        refuse(answers, &error);
        // Behind a store that fails, those who wait would wait in vain, one time-out after another.
        let behind = locked(&queues).get_mut(&lane).map(std::mem::take).unwrap_or_default();
        let untouched = StoreError::untouched(verb, format!("the call before it failed: {}", error.causes()));
        refuse(behind.into_iter().map(|waiting| waiting.answer), &untouched);
    }
}

/// What goes next; nothing, and the lane is free again, when nobody waits.
fn next_batch<T, A>(queues: &Mutex<Queues<T, A>>, lane: &Lane) -> Option<Vec<Waiting<T, A>>> {
    let mut queues = locked(queues);
    let queue = queues.get_mut(lane)?;
    // A caller who has gone away, and whose item never left, need not be served.
    queue.retain(|waiting| !waiting.answer.is_closed());
    let batch: Vec<_> = queue.drain(..queue.len().min(BATCH_MAX)).collect();
    if batch.is_empty() {
        queues.remove(lane);
        return None;
    }
    Some(batch)
}

fn refuse<A>(answers: impl IntoIterator<Item = oneshot::Sender<Result<A, StoreError>>>, error: &StoreError) {
    for answer in answers {
        let _ = answer.send(Err(error.again()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use lockgate_shared::store::Effect;
    use tokio::sync::Semaphore;

    use super::*;

    /// Calls that end when the test lets them, and what they carried.
    struct Bench {
        coalescer: Arc<Coalescer<u32, u32>>,
        gate: Arc<Semaphore>,
        calls: Arc<Mutex<Vec<usize>>>,
        under_way: Arc<AtomicUsize>,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                coalescer: Arc::new(Coalescer::new("enter")),
                gate: Arc::new(Semaphore::new(0)),
                calls: Arc::default(),
                under_way: Arc::default(),
            }
        }

        /// Rides with `item`; 0 breaks the call, 1 panics in it.
        fn ride(&self, lane: u16, item: u32) -> tokio::task::JoinHandle<Result<u32, StoreError>> {
            let coalescer = Arc::clone(&self.coalescer);
            let (gate, calls, under_way) =
                (Arc::clone(&self.gate), Arc::clone(&self.calls), Arc::clone(&self.under_way));
            tokio::spawn(async move {
                let call = move || {
                    move |items: Vec<u32>| {
                        let (gate, calls, under_way) =
                            (Arc::clone(&gate), Arc::clone(&calls), Arc::clone(&under_way));
                        async move {
                            assert_eq!(under_way.fetch_add(1, Ordering::SeqCst), 0, "one call at a time");
                            calls.lock().unwrap().push(items.len());
                            gate.acquire().await.unwrap().forget();
                            under_way.fetch_sub(1, Ordering::SeqCst);
                            assert!(!items.contains(&1), "deliberate");
                            if items.contains(&0) {
                                return Err(StoreError::unknown("enter", "deliberate"));
                            }
                            Ok(items.into_iter().map(|item| item * 10).collect())
                        }
                    }
                };
                coalescer.ride(&"demo".parse().unwrap(), lane, item, call).await
            })
        }

        async fn waiting(&self, items: usize) {
            let lane = ("demo".parse().unwrap(), 0);
            while locked(&self.coalescer.queues).get(&lane).map_or(0, VecDeque::len) != items {
                tokio::task::yield_now().await;
            }
        }

        async fn called(&self, calls: usize) {
            while self.calls.lock().unwrap().len() != calls {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn what_waits_while_a_call_is_under_way_goes_with_the_next() {
        let bench = Bench::new();
        let first = bench.ride(0, 7);
        bench.called(1).await;
        let others: Vec<_> = (10..110).map(|item| bench.ride(0, item)).collect();
        bench.waiting(100).await;
        bench.gate.add_permits(2);
        assert_eq!(first.await.unwrap().unwrap(), 70);
        for (item, other) in (10..).zip(others) {
            assert_eq!(other.await.unwrap().unwrap(), item * 10);
        }
        assert_eq!(*bench.calls.lock().unwrap(), [1, 100]);
        bench.waiting(0).await;
        while !locked(&bench.coalescer.queues).is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_call_carries_a_bounded_number_and_a_full_queue_turns_away() {
        let bench = Bench::new();
        let first = bench.ride(0, 7);
        bench.called(1).await;
        let others: Vec<_> = (0..QUEUE_MAX).map(|_| bench.ride(0, 9)).collect();
        bench.waiting(QUEUE_MAX).await;
        let refused = bench.ride(0, 9).await.unwrap().unwrap_err();
        assert_eq!(refused.effect, Effect::None);
        bench.gate.add_permits(1_000);
        assert!(first.await.unwrap().is_ok());
        for other in others {
            assert_eq!(other.await.unwrap().unwrap(), 90);
        }
        let calls = bench.calls.lock().unwrap();
        assert_eq!(calls.len(), 1 + QUEUE_MAX / BATCH_MAX);
        assert!(calls.iter().all(|size| *size <= BATCH_MAX));
    }

    #[tokio::test]
    async fn a_caller_who_goes_away_does_no_harm() {
        let bench = Bench::new();
        let first = bench.ride(0, 7);
        bench.called(1).await;
        let (gone, stays) = (bench.ride(0, 8), bench.ride(0, 9));
        bench.waiting(2).await;
        for dropped in [&first, &gone] {
            dropped.abort();
        }
        assert!(first.await.is_err() && gone.await.is_err());
        bench.gate.add_permits(2);
        assert_eq!(stays.await.unwrap().unwrap(), 90);
        assert_eq!(
            *bench.calls.lock().unwrap(),
            [1, 1],
            "whoever had gone before the call left is not in it"
        );
    }

    #[tokio::test]
    async fn an_error_or_a_panic_answers_everybody_and_the_lane_goes_on() {
        for breaks in [0, 1] {
            let bench = Bench::new();
            let first = bench.ride(0, breaks);
            bench.called(1).await;
            let behind = bench.ride(0, 9);
            bench.waiting(1).await;
            bench.gate.add_permits(2);
            let (first, behind) = (first.await.unwrap().unwrap_err(), behind.await.unwrap().unwrap_err());
            assert_eq!(first.effect, Effect::Unknown);
            assert_eq!(behind.effect, Effect::None, "its item was never sent");
            for said in [first.to_string(), behind.to_string()] {
                assert_eq!(said.matches("store failed").count(), 1, "said once: {said}");
            }
            assert_eq!(bench.ride(0, 9).await.unwrap().unwrap(), 90);
        }
    }

    #[tokio::test]
    async fn lanes_do_not_wait_for_each_other() {
        let coalescer: Coalescer<u32, u32> = Coalescer::new("enter");
        let sale: SaleId = "demo".parse().unwrap();
        let stuck = coalescer.ride(&sale, 0, 1, || |_| std::future::pending());
        let free = coalescer.ride(&sale, 1, 2, || |items: Vec<u32>| async move { Ok(items) });
        tokio::select! {
            biased;
            _ = stuck => panic!("it never ends"),
            answer = free => assert_eq!(answer.unwrap(), 2),
        }
    }
}
