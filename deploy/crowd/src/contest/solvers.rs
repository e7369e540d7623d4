//! A computing budget: so many threads, whoever has work for them.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread::JoinHandle,
    time::Instant,
};

use lockgate_shared::proof_of_work::Challenge;
use tokio::sync::oneshot;

/// Threads that solve challenges one after another, in the order they come.
pub struct Solvers {
    /// Unbounded, but everybody who enters has at most one challenge at a time.
    jobs: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    done: Arc<Done>,
}

/// What the threads have done so far.
#[derive(Default)]
struct Done {
    is_over: AtomicBool,
    solved: AtomicU64,
    busy_micros: AtomicU64,
}

struct Job {
    challenge: Box<Challenge>,
    proof: oneshot::Sender<String>,
}

impl Solvers {
    /// `threads` of them.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(threads: u16) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        let done = Arc::new(Done::default());
        let start = |_| {
            let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
            std::thread::Builder::new().name("solver".into()).spawn(move || work(&queue, &done))
        };
        let threads = (0..threads).map(start).collect::<Result<_, _>>()?;
        Ok(Self { jobs: Some(jobs), threads, done })
    }

    /// Has a challenge solved, once its turn has come; `None` when the time is over.
    pub async fn solve(&self, challenge: Box<Challenge>) -> Option<String> {
        let (proof, solved) = oneshot::channel();
        self.jobs.as_ref()?.send(Job { challenge, proof }).ok()?;
        solved.await.ok()
    }

    /// Challenges solved, and the seconds that all threads together were at work.
    #[must_use]
    pub fn done(&self) -> (u64, f64) {
        (self.done.solved.load(Relaxed), self.done.busy_micros.load(Relaxed) as f64 / 1e6)
    }
}

impl Drop for Solvers {
    fn drop(&mut self) {
        self.done.is_over.store(true, Relaxed);
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // One that panicked has nothing more to do either.
            let _ = thread.join();
        }
    }
}

fn work(queue: &Mutex<mpsc::Receiver<Job>>, done: &Done) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { challenge, proof }) = next else { return };
        let began = Instant::now();
        let found = challenge.solve(|| !done.is_over.load(Relaxed) && !proof.is_closed());
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        done.busy_micros.fetch_add(took, Relaxed);
        if let Some(found) = found {
            done.solved.fetch_add(1, Relaxed);
            // Whoever asked may have gone.
            let _ = proof.send(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use lockgate_shared::{clock::Timestamp, proof_of_work::verify, testing::demo_ring};

    use super::*;

    fn challenge(difficulty: u64, random: u8) -> Box<Challenge> {
        let now = Timestamp::from_seconds(1_800_000_000);
        Box::new(Challenge::issue(&"demo".parse().unwrap(), difficulty, [random; 32], now, &demo_ring()))
    }

    #[tokio::test]
    async fn each_gets_the_proof_of_its_own_challenge() {
        let solvers = Solvers::start(2).unwrap();
        let (one, two) = tokio::join!(solvers.solve(challenge(500, 1)), solvers.solve(challenge(500, 2)));
        for (proof, random) in [(one, 1), (two, 2)] {
            let now = Timestamp::from_seconds(1_800_000_001);
            let proof = verify(&proof.unwrap(), &"demo".parse().unwrap(), now, &demo_ring()).unwrap();
            assert_eq!(proof.id.0, [random; 16]);
        }
        let (solved, seconds) = solvers.done();
        assert!(solved == 2 && seconds > 0.0, "{solved} in {seconds} s");
    }

    #[tokio::test]
    async fn work_nobody_waits_for_is_not_done_and_the_end_ends_it() {
        let solvers = Solvers::start(1).unwrap();
        // Hard enough for years: only giving up ends it.
        let hard = || challenge(1 << 50, 3);
        tokio::select! {
            biased;
            proof = solvers.solve(hard()) => panic!("{proof:?}"),
            () = tokio::task::yield_now() => {}
        }
        assert!(solvers.solve(challenge(500, 4)).await.is_some(), "the thread is free again");
        let waiting = solvers.solve(hard());
        tokio::pin!(waiting);
        assert!(futures_poll(&mut waiting).await.is_none());
        assert_eq!(solvers.done().0, 1);
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }
}
