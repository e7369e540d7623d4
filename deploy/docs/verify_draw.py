#!/usr/bin/env python3
"""Verifies a draw: verify_draw.py RECORD.json [TICKETS.jsonl] (see draw.md). Python 3, standard library alone."""
import hashlib, hmac, json, struct, sys

FIELDS = ("algorithm", "sale", "commitment", "frozen_at", "drawn_at", "secret", "beacon", "pools", "seed")

def mac(key, message):
    return hmac.new(key, message, hashlib.sha256).digest()

def verify(record, tickets):
    if record["drawn"] is not True or record["algorithm"] != "lockgate-draw-v1":
        yield "drawn, algorithm: this is no draw by lockgate-draw-v1"
    yield from (f"{name}: no such field" for name in sorted(set(record) - set(FIELDS) - {"drawn", "checksum"}))
    text = {name: record.get(name, "") for name in FIELDS} | {"pools": ",".join(map(str, record["pools"]))}
    secret = bytes.fromhex(text["secret"])
    if hashlib.sha256(secret).hexdigest() != text["commitment"]:
        yield "commitment: is not the SHA-256 of the secret"
    seed = mac(secret, "\0".join(("lockgate-draw-v1", text["sale"], text["pools"], text["beacon"])).encode())
    if seed.hex() != text["seed"]:
        yield "seed: does not follow from secret, sale, pools and beacon"
    if "checksum" in record and record["checksum"] != hashlib.sha256("\0".join(text.values()).encode()).hexdigest():
        yield "checksum: one of the fields was changed"
    entries = [(pool, entry) for pool, size in enumerate(record["pools"]) for entry in range(size)]
    entries.sort(key=lambda place: mac(seed, struct.pack(">IQ", *place)))
    numbers = {place: number for number, place in enumerate(entries, 1)}
    for line, ticket in enumerate(tickets, 1):
        if numbers.get((ticket["pool"], ticket["entry"])) != ticket["number"]:
            yield f"tickets, line {line}: number: {ticket} was not drawn"

if __name__ == "__main__":
    try:
        record = json.load(open(sys.argv[1], encoding="utf-8"))
        tickets = [json.loads(line) for path in sys.argv[2:] for line in open(path, encoding="utf-8") if line.strip()]
        wrong = list(verify(record, tickets))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        wrong = [f"record or tickets: a field is missing or unfit: {error!r}"]
    sys.exit("\n".join(wrong) if wrong else print(f"verified: {sum(record['pools'])} entries, {len(tickets)} tickets"))
