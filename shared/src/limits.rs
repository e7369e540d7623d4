//! Every bound of the system in one place, related by compile-time assertions.
//!
//! A bound that two places must agree on is a constant here, so that neither can drift.

/// Longest sale id, in bytes.
pub const SALE_ID_BYTES_MAX: usize = 64;
/// Longest item id, in bytes.
pub const ITEM_ID_BYTES_MAX: usize = 64;
/// Longest id of an admission token, in bytes; the waiting room's own have 22.
pub const TOKEN_ID_BYTES_MAX: usize = 64;
/// Longest human-readable name of a sale or an item, in bytes.
pub const NAME_BYTES_MAX: usize = 200;
/// Longest operator message shown to shoppers, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 500;
/// Longest beacon of a draw, in bytes.
pub const BEACON_BYTES_MAX: usize = 512;
/// Most entries of a draw that is verified: each takes twenty bytes while the numbers are computed again.
pub const DRAW_ENTRIES_MAX: u64 = 100_000_000;
/// Longest account name an eligibility token may carry in `sub`, in bytes.
pub const ACCOUNT_NAME_BYTES_MAX: usize = 256;
/// Longest `Idempotency-Key`, in bytes.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
/// Shortest `Idempotency-Key` that identifies an anonymous entry: below this a key is a guessable name, and a
/// name alone never opens somebody's place.
pub const ENTRY_KEY_BYTES_MIN: usize = 16;
/// Longest e-mail address, in bytes (RFC 5321, section 4.5.3.1.3).
pub const EMAIL_BYTES_MAX: usize = 254;
/// Longest reason an operator gives for an act on an order, in characters.
pub const REASON_CHARS_MAX: usize = 500;
/// Shortest code of an allowlist, in bytes.
pub const CODE_BYTES_MIN: usize = 4;
/// Longest code of an allowlist, in bytes.
pub const CODE_BYTES_MAX: usize = 64;
/// Largest upload of allowlist codes in one request, in bytes.
pub const ALLOWLIST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most lines of one upload of allowlist codes.
pub const ALLOWLIST_LINES_MAX: usize = 200_000;
/// Longest credential accepted in a header or cookie, in bytes.
pub const CREDENTIAL_BYTES_MAX: usize = 2048;
/// Longest proof of work, in bytes of base64.
pub const PROOF_BYTES_MAX: usize = 2048;
/// Life of a proof-of-work challenge, in seconds: enough for a slow phone at the hardest one.
pub const PROOF_SECONDS: u64 = 300;
/// Largest request body, in bytes; anything above answers 413.
pub const BODY_BYTES_MAX: usize = 16 * 1024;
/// Largest message of a payment gateway, in bytes: one that is refused comes again for days and is never acted on, and
/// gateways say no bound for theirs.
pub const WEBHOOK_BYTES_MAX: usize = 256 * 1024;
/// Most gateways' messages above [`BODY_BYTES_MAX`] that are read at a time: they are in memory before it is known whose
/// they are.
pub const LARGE_WEBHOOKS_MAX: usize = 64;
/// Largest sale definition accepted by the operator API, in bytes.
pub const SALE_FILE_BYTES_MAX: usize = 256 * 1024;
/// Largest answer accepted from another Lockgate service, in bytes.
pub const INTERNAL_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest head (request line and headers) of one request, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most headers in one request.
pub const HEADERS_MAX: usize = 64;
/// Most connections one listener serves at a time.
pub const CONNECTIONS_MAX: usize = 20_000;
/// Most connections of one client network (an IPv4 address) without a setting; fewer than all, so that one network
/// cannot shut the others out.
pub const CONNECTIONS_PER_NETWORK_MAX: u32 = 10_000;
/// Most requests of one class of work that a process does at a time without a setting.
pub const IN_FLIGHT_MAX: usize = 2_000;
/// Answers that one connection may leave untaken in the kernel, in bytes (which doubles it for its own accounts).
pub const SEND_BUFFER_BYTES: u32 = 64 * 1024;
/// Connections that may wait to be accepted: what an outage's end brings in one moment.
pub const BACKLOG_MAX: u32 = 4_096;
/// Most of a refused body that is still taken, in bytes, so that the refusal is read and not lost to a reset.
pub const LINGER_BYTES_MAX: usize = 256 * 1024;
/// Longest a closing connection is kept for that.
pub const LINGER_SECONDS_MAX: u64 = 2;
/// Longest a client may take to take an answer that was written.
pub const WRITE_SECONDS_MAX: u64 = 20;
/// Longest a client may take to send the head of a request, counted from the end of the answer before it.
pub const HEAD_SECONDS_MAX: u64 = 10;
/// Longest a client may take to send a request body.
pub const BODY_SECONDS_MAX: u64 = 10;
/// Longest one request may run before it answers 503.
pub const REQUEST_SECONDS_MAX: u64 = 20;
/// Longest a process keeps serving open requests after SIGTERM.
pub const DRAIN_SECONDS_MAX: u64 = 15;

/// Most lanes of one sale.
pub const LANES_MAX: u16 = 256;
/// Most items of one sale.
pub const ITEMS_MAX: usize = 100;
/// Most units of one item.
pub const STOCK_MAX: u32 = 1_000_000;
/// Highest unit number of one item: units that came back and were withdrawn leave holes, which are not filled again.
pub const UNIT_NUMBER_MAX: u32 = 100 * STOCK_MAX;
/// Most changes of the stock of one sale while it runs.
pub const RESTOCKS_MAX: usize = 1_000;
/// Most units in one claim.
pub const QUANTITY_MAX: u32 = 100;
/// Highest price of one unit, in minor units.
pub const PRICE_MAX: i64 = 100_000_000_000;
/// Most sales one deployment serves at a time.
pub const SALES_MAX: usize = 1_000;
/// Highest admission rate, per minute.
pub const RATE_PER_MINUTE_MAX: u64 = 6_000_000;
/// Largest admission burst.
pub const BURST_MAX: u64 = 1_000_000;
/// Longest turn, hold and token life, in seconds (one day).
pub const SPAN_SECONDS_MAX: u64 = 86_400;
/// Shortest turn, in seconds: below this nobody could act on it.
pub const TURN_SECONDS_MIN: u64 = 5;

/// Most operations the SQLite writer commits in one transaction.
pub const WRITE_BATCH_MAX: usize = 256;
/// Most operations that wait for the SQLite writer; beyond it a call is refused as unavailable.
pub const WRITE_QUEUE_MAX: usize = 8_192;
/// Most events one intake batch carries.
pub const EVENT_BATCH_MAX: usize = 256;
/// Events of a sale that are kept although every group has done with them: whoever rebuilds a store may need them.
pub const EVENTS_KEPT: u64 = 4_096;
/// Events not yet orders above which claims are refused, without a setting.
pub const BACKLOG_DEFAULT: u64 = 20_000;
/// The same, at most.
pub const BACKLOG_MAX_EVENTS: u64 = 10_000_000;
/// Most workers of one process that take one sale's events in.
pub const INTAKE_WORKERS_MAX: usize = 16;
/// Most calls of the gate under way at a time, for each sale and kind of call.
pub const GATE_CALLS_MAX: usize = 1_024;
/// Most calls of the orders' store under way at a time for shoppers and gateways.
pub const ORDER_CALLS_MAX: usize = 512;
/// Most due holds one sweep marks.
pub const SWEEP_BATCH_MAX: usize = 256;
/// Most holds that travel in one page when a stock is rebuilt.
pub const HOLDS_PAGE_MAX: usize = 128;
/// Longest record a claimant keeps with a hold, in bytes.
pub const MEMO_BYTES_MAX: usize = 4 * 1024;
/// Most accounts, and most free units, that travel in one page when a stock is rebuilt.
pub const LEDGER_PAGE_MAX: usize = 10_000;
/// Life of a rebuilt stock that was uploaded and never concluded, in seconds.
pub const STAGED_SECONDS: u64 = 600;
/// Most accounts one stock snapshot lists by their short hash.
pub const CLAIMANTS_MAX: usize = 100_000;
/// Longest a store call may take, in milliseconds, before its outcome counts as unknown.
pub const STORE_CALL_MS_MAX: u64 = 2_000;

/// Calls without an answer in a row after which a store connection is made anew.
pub const STORE_TIMEOUTS_MAX: u32 = 3;
/// Most pinned calls that travel in one pipeline.
pub const STORE_BATCH_MAX: usize = 256;
/// Most pinned calls that wait for one server; beyond it a call is refused as unavailable.
pub const STORE_QUEUE_MAX: usize = 4_096;
/// Longest replicas are waited for, in milliseconds, before a write counts as not acknowledged.
pub const REPLICATION_WAIT_MS: u64 = 1_000;
/// Most replicas a write can be made to wait for.
pub const REPLICAS_REQUIRED_MAX: u32 = 16;

/// Life of a service token, in seconds.
pub const SERVICE_TOKEN_SECONDS: i64 = 60;
/// Bytes of key material a ring key must have at least.
pub const KEY_BYTES_MIN: usize = 32;
/// Most keys in one ring.
pub const KEYS_MAX: usize = 64;

const _: () = assert!(CREDENTIAL_BYTES_MAX * 4 <= HEAD_BYTES_MAX, "two credentials and the rest fit a head");
const _: () = assert!(PROOF_BYTES_MAX + CREDENTIAL_BYTES_MAX < BODY_BYTES_MAX);
const _: () = assert!(BODY_BYTES_MAX < SALE_FILE_BYTES_MAX && BODY_BYTES_MAX < WEBHOOK_BYTES_MAX);
const _: () = assert!(CODE_BYTES_MIN < CODE_BYTES_MAX && CODE_BYTES_MAX + EMAIL_BYTES_MAX < BODY_BYTES_MAX);
const _: () = assert!(WRITE_BATCH_MAX <= WRITE_QUEUE_MAX);
const _: () = assert!((CONNECTIONS_PER_NETWORK_MAX as usize) < CONNECTIONS_MAX);
const _: () = assert!(LINGER_BYTES_MAX > BODY_BYTES_MAX);
const _: () = assert!(IN_FLIGHT_MAX < WRITE_QUEUE_MAX, "work is shed before a store's queue is full");
const _: () = assert!(STORE_BATCH_MAX <= STORE_QUEUE_MAX && IN_FLIGHT_MAX < STORE_QUEUE_MAX);
const _: () =
    assert!(REPLICATION_WAIT_MS < STORE_CALL_MS_MAX, "WAIT answers before its pipeline is given up");
const _: () = assert!(GATE_CALLS_MAX < WRITE_QUEUE_MAX && ORDER_CALLS_MAX < WRITE_QUEUE_MAX);
const _: () = assert!((EVENT_BATCH_MAX * INTAKE_WORKERS_MAX) as u64 <= BACKLOG_DEFAULT);
const _: () = assert!(BACKLOG_DEFAULT <= BACKLOG_MAX_EVENTS);
const _: () = assert!(STORE_CALL_MS_MAX < REQUEST_SECONDS_MAX * 1_000);
const _: () = assert!(ENTRY_KEY_BYTES_MIN < IDEMPOTENCY_KEY_BYTES_MAX);
const _: () = assert!(EMAIL_BYTES_MAX + MESSAGE_BYTES_MAX < BODY_BYTES_MAX);
const _: () = assert!((QUANTITY_MAX as i64) * PRICE_MAX < i64::MAX / 2, "an order's amount fits an i64");
const _: () = assert!(
    CLAIMANTS_MAX * 21 + ITEMS_MAX * 200 < INTERNAL_BODY_BYTES_MAX,
    "a u64 has 20 digits and a comma"
);
const _: () = assert!(
    HOLDS_PAGE_MAX * (MEMO_BYTES_MAX * 6 + QUANTITY_MAX as usize * 11 + 500) < INTERNAL_BODY_BYTES_MAX,
    "a byte of text takes six in JSON at most"
);
const _: () = assert!(LEDGER_PAGE_MAX * 150 < INTERNAL_BODY_BYTES_MAX);
const _: () = assert!(STOCK_MAX < UNIT_NUMBER_MAX && (UNIT_NUMBER_MAX as u64) < (1 << 32));
const _: () = assert!(DRAW_ENTRIES_MAX <= u32::MAX as u64, "a drawn number is a u32");
