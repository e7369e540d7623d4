//! Load shedding: each class of work has a bound on how much of it a process does at a time. What is above it is
//! refused at once, while the answer is still cheap, instead of waiting until everybody is late.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::class::Class;
use crate::problem::Problem;

/// How much work each class has begun.
#[derive(Clone)]
pub(super) struct Load {
    in_flight_max: usize,
    in_flight: [Arc<AtomicUsize>; Class::ALL.len()],
}

/// A request that has begun; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Begun(Arc<Work>);

#[derive(Debug)]
struct Work {
    in_flight: Arc<AtomicUsize>,
    /// A request whose body is still on its way does no work yet, so it takes nobody's place: otherwise a few thousand
    /// slow bodies would shut everybody out.
    counts: AtomicBool,
}

impl Work {
    fn count(&self) {
        if !self.counts.swap(true, Ordering::Relaxed) {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // From now on the body, if it is still held somewhere, must not count any more.
        if self.0.counts.swap(true, Ordering::Relaxed) {
            self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Load {
    /// Bounds each class that can be shed to `in_flight_max` requests at a time.
    pub(super) fn new(in_flight_max: usize) -> Self {
        Self { in_flight_max, in_flight: Class::ALL.map(|_| Arc::default()) }
    }

    /// Begins a request, unless its class does as much as it may; `None` where nothing is counted.
    pub(super) fn begin(&self, class: Class, body: &mut Body) -> Result<Option<Begun>, Problem> {
        if !is_shed(class) {
            return Ok(None);
        }
        let in_flight = &self.in_flight[class.index()];
        if in_flight.load(Ordering::Relaxed) >= self.in_flight_max {
            return Err(overloaded());
        }
        let work = Arc::new(Work { in_flight: Arc::clone(in_flight), counts: AtomicBool::new(false) });
        if body.is_end_stream() {
            work.count();
        } else {
            let inner = std::mem::take(body);
            *body = Body::new(Arriving { inner, work: Arc::clone(&work) });
        }
        Ok(Some(Begun(work)))
    }

    /// How many requests of `class` are being worked on.
    pub(super) fn in_flight(&self, class: Class) -> usize {
        self.in_flight[class.index()].load(Ordering::Relaxed)
    }
}

/// Health checks and operators are what an overload is seen and ended with. Pages and polls are prepared bytes: to
/// refuse one costs as much as to answer it, and whoever is refused asks again.
fn is_shed(class: Class) -> bool {
    matches!(
        class,
        Class::Enter | Class::Turn | Class::Checkout | Class::Order | Class::Pay | Class::Callback
    )
}

fn overloaded() -> Problem {
    let detail = "More is asked for than can be done at once. Wait as long as Retry-After says, then try again; a \
                  place you have is kept.";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail)
}

/// A body that says when it is there.
struct Arriving {
    inner: Body,
    work: Arc<Work>,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if frame.is_none() || self.inner.is_end_stream() {
            self.work.count();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn above_the_bound_work_is_refused_until_some_ends() {
        let load = Load::new(2);
        let mut body = Body::empty();
        let first = load.begin(Class::Enter, &mut body).unwrap();
        let _second = load.begin(Class::Enter, &mut body).unwrap();
        let refused = load.begin(Class::Enter, &mut body).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.code), (503, "overloaded"));
        assert!(refused.retry_after_seconds.is_some());
        assert!(load.begin(Class::Checkout, &mut body).is_ok(), "another class has its own");
        drop(first);
        assert!(load.begin(Class::Enter, &mut body).is_ok());
    }

    #[test]
    fn health_operators_services_and_pages_are_never_shed() {
        let load = Load::new(0);
        for class in [Class::Health, Class::Operator, Class::Service, Class::Page] {
            assert!(load.begin(class, &mut Body::empty()).unwrap().is_none(), "{class:?}");
        }
    }

    #[tokio::test]
    async fn f4_a_body_that_is_on_its_way_takes_nobodys_place() {
        let load = Load::new(1);
        let slow: Vec<_> = (0..100)
            .map(|_| {
                let mut body = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
                let begun = load.begin(Class::Enter, &mut body).unwrap();
                (begun, body)
            })
            .collect();
        assert_eq!(load.in_flight(Class::Enter), 0);
        let mut body = Body::from_stream(futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from("x"))]));
        let begun = load.begin(Class::Enter, &mut body).unwrap();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "x");
        assert_eq!(load.in_flight(Class::Enter), 1, "a body that is there counts");
        drop(begun);
        drop(slow);
        assert_eq!(load.in_flight(Class::Enter), 0);
    }

    #[tokio::test]
    async fn a_body_read_after_its_request_ended_does_not_count() {
        let load = Load::new(1);
        let mut body = Body::from_stream(futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from("x"))]));
        drop(load.begin(Class::Pay, &mut body).unwrap());
        let _ = body.collect().await;
        assert_eq!(load.in_flight(Class::Pay), 0);
    }
}
