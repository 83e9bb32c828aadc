-- create the table of checkpoints and fences
CREATE TABLE IF NOT EXISTS "main"."headrace_checkpoints" (
  materialization TEXT NOT NULL,
  key_begin BIGINT NOT NULL,
  key_end BIGINT NOT NULL,
  fence BIGINT NOT NULL,
  checkpoint TEXT NOT NULL,
  opened BIGINT NOT NULL,
  holder TEXT NOT NULL,
  PRIMARY KEY (materialization, key_begin, key_end)
);
-- create table "main"."all types"
CREATE TABLE "main"."all types" (
  "id" TEXT NOT NULL,
  "always" INTEGER NOT NULL,
  "boolean" BOOLEAN_INT,
  "integer" INTEGER,
  "number" REAL,
  "string" TEXT,
  "date" DATE_TEXT,
  "instant" DATETIME_TEXT,
  "decimal" DECIMAL_TEXT(38,9),
  "object" JSON_TEXT,
  "_document" JSON_TEXT NOT NULL,
  PRIMARY KEY ("id")
);
-- create table "main"."deltas"
CREATE TABLE "main"."deltas" (
  "customer" TEXT NOT NULL,
  "day" DATE_TEXT NOT NULL,
  "count" INTEGER,
  "total" DECIMAL_TEXT(18,2),
  "largest" INTEGER,
  "first" TEXT,
  "note" TEXT
);
