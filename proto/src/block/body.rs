//! The sending half of a block stream: a queue of encoded bytes that HTTP/2 takes its DATA frames from.
//!
//! A message is encoded by whoever sends it, straight into the queue: small ones one after the other into a shared chunk,
//! because each DATA frame costs a system call of its own; large payload segments as chunks by themselves, because a copy
//! would cost more. Nothing here waits for the peer: who sends bounds what is in flight.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

/// Payload segments up to this length are copied into the shared chunk.
pub const COPY_BYTES: usize = 16 << 10;

/// The shared chunk is closed at this length.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Encoded bytes in the order in which they go out.
#[derive(Debug, Default)]
pub struct Chunks {
    ready: VecDeque<Bytes>,
    /// The chunk that is still being filled, after `ready`.
    open: BytesMut,
    len_bytes: usize,
}

impl Chunks {
    /// Nothing queued.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of bytes queued.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// The buffer to append exactly `len` bytes to, which are counted already.
    pub(super) fn buffer(&mut self, len: usize) -> &mut BytesMut {
        if self.open.capacity() - self.open.len() < len {
            self.close_chunk();
            // Takes its old memory again when the chunks cut from it are gone.
            self.open.reserve(len.max(CHUNK_BYTES));
        }
        self.len_bytes += len;
        &mut self.open
    }

    /// Appends payload segments: the large ones by reference.
    pub(super) fn payload(&mut self, segments: &[Bytes]) {
        for segment in segments {
            if segment.len() <= COPY_BYTES {
                self.buffer(segment.len()).extend_from_slice(segment);
            } else {
                self.close_chunk();
                self.len_bytes += segment.len();
                self.ready.push_back(segment.clone());
            }
        }
    }

    fn close_chunk(&mut self) {
        if !self.open.is_empty() {
            self.ready.push_back(self.open.split().freeze());
        }
    }

    /// Takes the next chunk, if there is one.
    pub fn pop(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.close_chunk();
        }
        let chunk = self.ready.pop_front()?;
        self.len_bytes -= chunk.len();
        Some(chunk)
    }
}

/// How far the stream has come from its own side's view.
#[derive(Debug)]
enum End {
    /// More may be sent.
    Open,
    /// Nothing more is accepted; what is queued, and what is in flight, still goes out. With trailers on a server.
    WhenIdle(Option<HeaderMap>),
    /// What is queued still goes out, then the end; what is in flight is not waited for.
    Now(Option<HeaderMap>),
    /// The end went out, or the peer or HTTP/2 gave up: nothing can be sent any more.
    Gone,
}

#[derive(Debug)]
struct State {
    chunks: Chunks,
    end: End,
    /// Cost of requests that are not answered yet, in bytes; 0 on a client.
    in_flight_bytes: usize,
    /// Number of requests that are not answered yet; 0 on a client.
    in_flight: usize,
    /// The HTTP/2 task, when it waits for something to send.
    sender: Option<Waker>,
    /// The reading task of a server, when it waits for room, or for the last answer.
    reader: Option<Waker>,
}

/// The queue, shared by all who send on one stream.
#[derive(Debug)]
pub struct Outbox {
    state: Mutex<State>,
    max_in_flight_bytes: usize,
}

/// The stream can take nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the block stream is closed")]
pub struct Closed;

impl Outbox {
    /// An empty queue. [`Outbox::poll_room`] holds the reader back while more than `max_in_flight_bytes` are being worked
    /// on or queued.
    pub(super) fn new(max_in_flight_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                chunks: Chunks::new(),
                end: End::Open,
                in_flight_bytes: 0,
                in_flight: 0,
                sender: None,
                reader: None,
            }),
            max_in_flight_bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic half-way runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes a message into the queue.
    pub(super) fn send(&self, encode: impl FnOnce(&mut Chunks)) -> Result<(), Closed> {
        let waker = {
            let mut state = self.lock();
            if !matches!(state.end, End::Open) {
                return Err(Closed);
            }
            encode(&mut state.chunks);
            state.sender.take()
        };
        wake(waker);
        Ok(())
    }

    /// Counts a request as in flight until [`Outbox::answer`].
    pub(super) fn charge(&self, cost_bytes: usize) {
        let mut state = self.lock();
        state.in_flight += 1;
        state.in_flight_bytes += cost_bytes;
    }

    /// Encodes the answer to a request of this cost; it is dropped when the stream can take nothing any more.
    pub(super) fn answer(&self, cost_bytes: usize, encode: impl FnOnce(&mut Chunks)) {
        let (sender, reader) = {
            let mut state = self.lock();
            state.in_flight = state.in_flight.saturating_sub(1);
            state.in_flight_bytes = state.in_flight_bytes.saturating_sub(cost_bytes);
            if matches!(state.end, End::Open | End::WhenIdle(_)) {
                encode(&mut state.chunks);
            }
            (state.sender.take(), self.reader_with_room(&mut state))
        };
        wake(sender);
        wake(reader);
    }

    fn reader_with_room(&self, state: &mut State) -> Option<Waker> {
        if state.reader.is_some() && self.has_room(state) { state.reader.take() } else { None }
    }

    fn has_room(&self, state: &State) -> bool {
        matches!(state.end, End::Gone) || state.in_flight_bytes + state.chunks.len_bytes() < self.max_in_flight_bytes
    }

    /// Ready when the reader may take another request, or when nobody is there any more to be answered.
    pub(super) fn poll_room(&self, context: &Context<'_>) -> Poll<Result<(), Closed>> {
        let mut state = self.lock();
        if matches!(state.end, End::Gone) {
            return Poll::Ready(Err(Closed));
        }
        if self.has_room(&state) {
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ready when no request is without an answer.
    pub(super) fn poll_idle(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.in_flight == 0 {
            return Poll::Ready(());
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Accepts no more; the stream ends when all that is in flight has been answered and sent.
    pub(super) fn end_when_idle(&self, trailers: Option<HeaderMap>) {
        self.end(End::WhenIdle(trailers));
    }

    /// Accepts no more; the stream ends when what is queued has been sent.
    pub(super) fn end_now(&self, trailers: Option<HeaderMap>) {
        self.end(End::Now(trailers));
    }

    /// The first end counts, except that a hard one overtakes a soft one.
    fn end(&self, end: End) {
        let waker = {
            let mut state = self.lock();
            match (&state.end, &end) {
                (End::Open, _) | (End::WhenIdle(_), End::Now(_)) => state.end = end,
                _ => return,
            }
            state.sender.take()
        };
        wake(waker);
    }

    /// Nothing can be sent any more: forgets what is queued and lets both sides see it.
    pub(super) fn gone(&self) {
        let (chunks, sender, reader) = {
            let mut state = self.lock();
            state.end = End::Gone;
            (std::mem::take(&mut state.chunks), state.sender.take(), state.reader.take())
        };
        drop(chunks);
        wake(sender);
        wake(reader);
    }

    /// Whether sending still makes sense.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.lock().end, End::Open)
    }

    fn poll_frame(&self, context: &Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        let (frame, reader) = {
            let mut state = self.lock();
            if let Some(chunk) = state.chunks.pop() {
                (Some(Frame::data(chunk)), self.reader_with_room(&mut state))
            } else {
                let idle = state.in_flight == 0;
                let trailers = match &mut state.end {
                    End::Now(trailers) => trailers.take(),
                    End::WhenIdle(trailers) if idle => trailers.take(),
                    End::Gone => None,
                    End::Open | End::WhenIdle(_) => {
                        if !state.sender.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                            state.sender = Some(context.waker().clone());
                        }
                        return Poll::Pending;
                    }
                };
                state.end = End::Gone;
                (trailers.map(Frame::trailers), state.reader.take())
            }
        };
        wake(reader);
        Poll::Ready(frame)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The body that hands the queue to HTTP/2. There is one per queue; when HTTP/2 drops it, the stream is gone.
#[derive(Debug)]
pub(super) struct OutboxBody(pub(super) Arc<Outbox>);

impl Drop for OutboxBody {
    fn drop(&mut self) {
        self.0.gone();
    }
}

impl http_body::Body for OutboxBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_frame(context).map(|frame| frame.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;

    fn next(body: &mut OutboxBody) -> Poll<Option<Frame<Bytes>>> {
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(body).poll_frame(&mut context).map(|frame| frame.map(|frame| frame.unwrap()))
    }

    fn data(poll: Poll<Option<Frame<Bytes>>>) -> Bytes {
        match poll {
            Poll::Ready(Some(frame)) => frame.into_data().expect("data"),
            other => panic!("no data frame: {other:?}"),
        }
    }

    fn put(len: usize) -> impl FnOnce(&mut Chunks) {
        move |chunks| chunks.payload(&[Bytes::from(vec![5; len])])
    }

    #[test]
    fn small_messages_when_many_then_one_chunk() {
        let outbox = Outbox::new(0);
        let mut body = OutboxBody(outbox.clone());
        for _ in 0..32 {
            outbox.send(put(4096)).unwrap();
        }
        assert_eq!(data(next(&mut body)).len(), 32 * 4096);
        assert!(next(&mut body).is_pending());
    }

    #[test]
    fn small_messages_when_beyond_a_chunk_then_the_next_one() {
        let outbox = Outbox::new(0);
        let mut body = OutboxBody(outbox.clone());
        for _ in 0..100 {
            outbox.send(put(4096)).unwrap();
        }
        assert_eq!(data(next(&mut body)).len(), CHUNK_BYTES);
        assert_eq!(data(next(&mut body)).len(), 100 * 4096 - CHUNK_BYTES);
    }

    #[test]
    fn large_payload_when_sent_then_the_same_memory_goes_out() {
        let outbox = Outbox::new(0);
        let mut body = OutboxBody(outbox.clone());
        let large = Bytes::from(vec![1; COPY_BYTES + 1]);
        outbox.send(put(10)).unwrap();
        outbox.send(|chunks| chunks.payload(std::slice::from_ref(&large))).unwrap();
        outbox.send(put(20)).unwrap();
        assert_eq!(data(next(&mut body)).len(), 10);
        assert_eq!(data(next(&mut body)).as_ptr(), large.as_ptr());
        assert_eq!(data(next(&mut body)).len(), 20);
    }

    #[test]
    fn chunk_memory_when_released_then_used_again() {
        let outbox = Outbox::new(0);
        let mut body = OutboxBody(outbox.clone());
        outbox.send(put(1000)).unwrap();
        let first = data(next(&mut body)).as_ptr() as usize;
        for _ in 0..1000 {
            outbox.send(put(1000)).unwrap();
            let at = data(next(&mut body)).as_ptr() as usize;
            assert!((first..first + 2 * CHUNK_BYTES).contains(&at));
        }
    }

    #[test]
    fn room_when_in_flight_and_queued_exceed_the_limit_then_waits_for_either() {
        let outbox = Outbox::new(1000);
        let mut body = OutboxBody(outbox.clone());
        let context = Context::from_waker(Waker::noop());
        outbox.charge(1000);
        assert!(outbox.poll_room(&context).is_pending());
        outbox.answer(1000, put(1000));
        assert!(outbox.poll_room(&context).is_pending());
        assert_eq!(data(next(&mut body)).len(), 1000);
        assert_eq!(outbox.poll_room(&context), Poll::Ready(Ok(())));
        drop(body);
        assert_eq!(outbox.poll_room(&context), Poll::Ready(Err(Closed)));
    }

    #[test]
    fn end_when_idle_then_answers_still_go_out_before_the_trailers() {
        let outbox = Outbox::new(1000);
        let mut body = OutboxBody(outbox.clone());
        outbox.charge(10);
        outbox.end_when_idle(Some(HeaderMap::new()));
        assert_eq!(outbox.send(put(1)), Err(Closed));
        assert!(next(&mut body).is_pending());
        outbox.answer(10, put(7));
        assert_eq!(data(next(&mut body)).len(), 7);
        assert!(matches!(next(&mut body), Poll::Ready(Some(frame)) if frame.is_trailers()));
        assert!(matches!(next(&mut body), Poll::Ready(None)));
    }

    #[test]
    fn end_now_when_requests_are_in_flight_then_their_answers_are_dropped() {
        let outbox = Outbox::new(1000);
        let mut body = OutboxBody(outbox.clone());
        outbox.charge(10);
        outbox.end_when_idle(None);
        outbox.end_now(Some(HeaderMap::new()));
        outbox.answer(10, put(7));
        assert!(matches!(next(&mut body), Poll::Ready(Some(frame)) if frame.is_trailers()));
        assert!(!outbox.is_open());
    }
}
