-- create the table of checkpoints and fences
CREATE TABLE IF NOT EXISTS "public"."headrace_checkpoints" (
  materialization TEXT NOT NULL,
  key_begin BIGINT NOT NULL,
  key_end BIGINT NOT NULL,
  fence BIGINT NOT NULL,
  checkpoint TEXT NOT NULL,
  opened BIGINT NOT NULL,
  holder TEXT NOT NULL,
  PRIMARY KEY (materialization, key_begin, key_end)
);
-- create table "public"."all types"
CREATE TABLE "public"."all types" (
  "id" TEXT NOT NULL,
  "always" BIGINT NOT NULL,
  "boolean" BOOLEAN,
  "integer" BIGINT,
  "number" DOUBLE PRECISION,
  "string" TEXT,
  "date" DATE,
  "instant" TIMESTAMPTZ,
  "decimal" NUMERIC(38,9),
  "object" JSON,
  "_document" JSON NOT NULL,
  PRIMARY KEY ("id")
);
-- create table "public"."deltas"
CREATE TABLE "public"."deltas" (
  "customer" TEXT NOT NULL,
  "day" DATE NOT NULL,
  "count" BIGINT,
  "total" NUMERIC(18,2),
  "largest" BIGINT,
  "first" TEXT,
  "note" TEXT
);
