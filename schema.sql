-- The tables of Doorbuster, for MySQL 8.4 and MariaDB 10.11. This file is the truth about them.
--
-- It is written so that a program can read it line by line:
--   * a comment is a line of its own;
--   * a statement ends with a semicolon at the end of a line;
--   * inside a table, each column and each key has a line of its own.
-- From the same lines the embedded SQLite gets its tables (pkg/ledger/schema.go).
--
-- Ids, keys and states are ASCII and compare byte by byte. Times are UTC, to the millisecond.
-- Amounts of money are in cents, amounts of stock in units.

-- Which version of this file the database was made from.
CREATE TABLE IF NOT EXISTS schema_version (
  version     INT NOT NULL,
  fingerprint VARCHAR(64) NOT NULL,
  applied_at  DATETIME(3) NOT NULL,
  PRIMARY KEY (version)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- One promotion. generation counts its restores in Redis. rules is JSON: see sale.Rules.
CREATE TABLE IF NOT EXISTS sales (
  id                VARCHAR(64) NOT NULL,
  name              VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  status            VARCHAR(16) NOT NULL,
  starts_at         DATETIME(3) NOT NULL,
  ends_at           DATETIME(3) NOT NULL,
  payment_window_ms BIGINT NOT NULL,
  per_user_limit    BIGINT NOT NULL,
  timezone          VARCHAR(64) NOT NULL,
  rules             TEXT NOT NULL,
  revision          BIGINT NOT NULL,
  generation        BIGINT NOT NULL,
  created_at        DATETIME(3) NOT NULL,
  updated_at        DATETIME(3) NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- One SKU of a sale. stock -1 is unlimited. granted counts every unit an order ever took, sold the
-- units that did not come back. The first check is the last guard against overselling.
CREATE TABLE IF NOT EXISTS items (
  sale_id     VARCHAR(64) NOT NULL,
  sku         VARCHAR(64) NOT NULL,
  position    INT NOT NULL,
  stock       BIGINT NOT NULL,
  granted     BIGINT NOT NULL,
  sold        BIGINT NOT NULL,
  price_cents BIGINT NOT NULL,
  PRIMARY KEY (sale_id, sku),
  CONSTRAINT items_not_oversold CHECK (stock = -1 OR sold <= stock),
  CONSTRAINT items_sold_not_negative CHECK (sold >= 0),
  CONSTRAINT items_sold_was_granted CHECK (sold <= granted),
  CONSTRAINT items_stock_in_range CHECK (stock >= -1)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- What a grant became. items is JSON: [{"sku","quantity","price_cents","returned"}]. The id begins with
-- the sale's id and a dot, so that a range of the primary key is one sale. reason is a code that says why
-- an order ended, '' while it lives. late_payment_at is when it was paid for after that, for the first time.
CREATE TABLE IF NOT EXISTS orders (
  id              VARCHAR(91) NOT NULL,
  sale_id         VARCHAR(64) NOT NULL,
  user_id         VARCHAR(128) NOT NULL,
  idempotency_key VARCHAR(64) NOT NULL,
  ip              VARCHAR(64) NOT NULL,
  status          VARCHAR(16) NOT NULL,
  items           TEXT NOT NULL,
  generation      BIGINT NOT NULL,
  created_at      DATETIME(3) NOT NULL,
  expires_at      DATETIME(3) NULL,
  reason          VARCHAR(64) NOT NULL,
  late_payment_at DATETIME(3) NULL,
  updated_at      DATETIME(3) NOT NULL,
  PRIMARY KEY (id),
  KEY orders_by_user (sale_id, user_id),
  KEY orders_by_created (sale_id, created_at),
  KEY orders_by_expiry (status, expires_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- How much of a limit is used: units granted in the period and not come back. limit_name, period and
-- subject are those of sale.Count.
CREATE TABLE IF NOT EXISTS counters (
  sale_id    VARCHAR(64) NOT NULL,
  limit_name VARCHAR(16) NOT NULL,
  period     VARCHAR(10) NOT NULL,
  subject    VARCHAR(128) NOT NULL,
  used       BIGINT NOT NULL,
  PRIMARY KEY (sale_id, limit_name, period, subject),
  CONSTRAINT counters_not_negative CHECK (used >= 0)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- The log of stock and counters: append only, and chained: per SKU and per counter each qty_before equals
-- the qty_after of the line before it. Lines of an SKU have counter '' and count remaining units (stock - sold;
-- for unlimited stock -sold). Lines of a counter (LIMIT_NAME/PERIOD/SUBJECT) have sku '' and count units used.
CREATE TABLE IF NOT EXISTS flows (
  seq        BIGINT NOT NULL AUTO_INCREMENT,
  sale_id    VARCHAR(64) NOT NULL,
  sku        VARCHAR(64) NOT NULL,
  counter    VARCHAR(160) NOT NULL,
  kind       VARCHAR(16) NOT NULL,
  ref        VARCHAR(128) NOT NULL,
  order_id   VARCHAR(91) NOT NULL,
  user_id    VARCHAR(128) NOT NULL,
  qty_before BIGINT NOT NULL,
  qty_step   BIGINT NOT NULL,
  qty_after  BIGINT NOT NULL,
  reason     VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  actor      VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  at         DATETIME(3) NOT NULL,
  PRIMARY KEY (seq),
  UNIQUE KEY flows_once (sale_id, sku, counter, kind, ref),
  KEY flows_by_sale (sale_id, seq),
  CONSTRAINT flows_add_up CHECK (qty_after = qty_before + qty_step)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Stock that came back, to be applied in Redis once. items is JSON: [{"sku","quantity","price_cents"}],
-- units the sum of its quantities. user_id is '' when the units stay counted against the user. counts is JSON:
-- [{"limit","period","subject","units"}], the counters it takes units off. applied_at is NULL until Redis is known
-- to have it.
CREATE TABLE IF NOT EXISTS givebacks (
  sale_id    VARCHAR(64) NOT NULL,
  id         VARCHAR(144) NOT NULL,
  order_id   VARCHAR(91) NOT NULL,
  user_id    VARCHAR(128) NOT NULL,
  items      TEXT NOT NULL,
  units      BIGINT NOT NULL,
  counts     TEXT NOT NULL,
  decided_at DATETIME(3) NOT NULL,
  applied_at DATETIME(3) NULL,
  PRIMARY KEY (sale_id, id),
  KEY givebacks_by_decided (sale_id, decided_at),
  KEY givebacks_by_applied (applied_at, sale_id, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Which messages of the stream are written: first_seq to last_seq, both inclusive. stream_id is the
-- stream's creation time, so that a new stream never inherits an old one's progress. last_at is the
-- stream's own time of the message last_seq, in Unix ns: a stream that was restored from an older copy
-- keeps its creation time and gives the same sequences to other messages, of another time.
CREATE TABLE IF NOT EXISTS progress (
  stream_id BIGINT NOT NULL,
  first_seq BIGINT NOT NULL,
  last_seq  BIGINT NOT NULL,
  last_at   BIGINT NOT NULL,
  PRIMARY KEY (stream_id, first_seq),
  CONSTRAINT progress_in_order CHECK (first_seq <= last_seq)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Grants the order worker gave up on. record is what sale.AppendGrant wrote, or the message that could
-- not be read. status is open, replayed or cancelled.
CREATE TABLE IF NOT EXISTS dead_letters (
  sale_id    VARCHAR(64) NOT NULL,
  order_id   VARCHAR(91) NOT NULL,
  stream_id  BIGINT NOT NULL,
  seq        BIGINT NOT NULL,
  generation BIGINT NOT NULL,
  reason     VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  attempts   INT NOT NULL,
  record     LONGBLOB NOT NULL,
  status     VARCHAR(16) NOT NULL,
  at         DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NOT NULL,
  PRIMARY KEY (sale_id, order_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- What happened to orders and is not yet on the event stream, in the order of seq. body is JSON: see sale.Event.
CREATE TABLE IF NOT EXISTS events (
  seq      BIGINT NOT NULL AUTO_INCREMENT,
  sale_id  VARCHAR(64) NOT NULL,
  order_id VARCHAR(91) NOT NULL,
  kind     VARCHAR(16) NOT NULL,
  body     TEXT NOT NULL,
  at       DATETIME(3) NOT NULL,
  PRIMARY KEY (seq)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Calls of the shop's system, one per order. body is the JSON that is sent, host the receiver in url, whose queue
-- it waits in. status is waiting, delivered, failed, parked or dropped. next_at is when the next attempt is due;
-- whoever makes one moves it on first.
CREATE TABLE IF NOT EXISTS deliveries (
  order_id   VARCHAR(91) NOT NULL,
  sale_id    VARCHAR(64) NOT NULL,
  url        VARCHAR(2000) NOT NULL,
  host       VARCHAR(255) NOT NULL,
  body       TEXT NOT NULL,
  status     VARCHAR(16) NOT NULL,
  attempts   INT NOT NULL,
  last_error VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at DATETIME(3) NOT NULL,
  next_at    DATETIME(3) NOT NULL,
  give_up_at DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NOT NULL,
  PRIMARY KEY (order_id),
  KEY deliveries_by_sale (sale_id, order_id),
  KEY deliveries_due (status, host, next_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- The history of a sale's definition: who changed what, from which value to which, and why.
CREATE TABLE IF NOT EXISTS changes (
  seq       BIGINT NOT NULL AUTO_INCREMENT,
  sale_id   VARCHAR(64) NOT NULL,
  field     VARCHAR(80) NOT NULL,
  old_value VARCHAR(2000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  new_value VARCHAR(2000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  reason    VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  actor     VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  at        DATETIME(3) NOT NULL,
  PRIMARY KEY (seq),
  KEY changes_by_sale (sale_id, seq)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
