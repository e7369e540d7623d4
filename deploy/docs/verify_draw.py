#!/usr/bin/env python3
"""Verifies a draw: verify_draw.py RECORD.json [TICKETS.jsonl] (see draw.md). Python 3.9, standard library alone."""
import hashlib, hmac, json, struct, sys
FIELDS = ("algorithm", "sale", "commitment", "frozen_at", "drawn_at", "secret", "beacon", "pools", "seed")

def verify(record, tickets):
    text = record | {"beacon": record.get("beacon", ""), "pools": ",".join(map(str, record["pools"]))}
    secret = bytes.fromhex(text["secret"])
    seeded = "\0".join(("lockgate-draw-v1", text["sale"], text["pools"], text["beacon"]))
    seed = hmac.digest(secret, seeded.encode(), "sha256")
    sound = {name: name in FIELDS + ("drawn", "checksum") for name in record} | {
        "drawn": record["drawn"] is True, "algorithm": record["algorithm"] == "lockgate-draw-v1",
        "commitment": hashlib.sha256(secret).hexdigest() == text["commitment"], "seed": seed.hex() == text["seed"],
        "checksum": hashlib.sha256("\0".join(text[name] for name in FIELDS).encode()).hexdigest() == text["checksum"],
        "pools": sum(record["pools"]) <= 100_000_000, "beacon": record.get("beacon") != ""}
    if not all(sound.values()):
        return [f"{name}: does not belong to this record" for name in sound if not sound[name]]
    places = [(pool, entry) for pool, size in enumerate(record["pools"]) for entry in range(size)]
    places.sort(key=lambda place: hmac.digest(seed, struct.pack(">IQ", *place), "sha256"))
    numbers = {place: number for number, place in enumerate(places, 1)}
    return [f"tickets, line {line}: number: {ticket} was not drawn" for line, ticket in enumerate(tickets, 1)
            if numbers.get((ticket["pool"], ticket["entry"])) != ticket["number"]]

try:
    record = json.load(open(sys.argv[1], encoding="utf-8"))
    tickets = [json.loads(line) for path in sys.argv[2:] for line in open(path, encoding="utf-8") if line.strip()]
    wrong = verify(record, tickets)
except (LookupError, TypeError, ValueError) as error:
    wrong = [f"record or tickets: a field is missing or unfit: {error!r}"]
sys.exit("\n".join(wrong) if wrong else print(f"verified: {sum(record['pools'])} entries, {len(tickets)} tickets"))
