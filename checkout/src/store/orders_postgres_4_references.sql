-- What an attempt was opened with, so that its gateway is asked again in the same words, and the gateway's own name for
-- it. Attempts older than this step have neither.
ALTER TABLE payments ADD COLUMN reference text;
ALTER TABLE payments ADD COLUMN description text;
ALTER TABLE payments ADD COLUMN return_url text;
