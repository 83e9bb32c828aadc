-- column always of "public"."things" can be missing now: let it be null
ALTER TABLE "public"."things" ALTER COLUMN "always" DROP NOT NULL;
-- widen column count of "public"."things" from bigint to DOUBLE PRECISION
ALTER TABLE "public"."things" ALTER COLUMN "count" TYPE DOUBLE PRECISION USING CAST("count" AS DOUBLE PRECISION);
-- widen column price of "public"."things" from numeric(9,2) to NUMERIC(18,4)
ALTER TABLE "public"."things" ALTER COLUMN "price" TYPE NUMERIC(18,4) USING CAST("price" AS NUMERIC(18,4));
-- add column added to "public"."things"
ALTER TABLE "public"."things" ADD COLUMN "added" TIMESTAMPTZ;
-- column gone of "public"."things" is stored no more: let it be null
ALTER TABLE "public"."things" ALTER COLUMN "gone" DROP NOT NULL;
