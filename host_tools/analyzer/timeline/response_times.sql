-- Response times out of a timeline that `bluebridge log DIR --perfetto FILE` wrote.
--
-- For the query page of ui.perfetto.dev, or: trace_processor_shell -q response_times.sql FILE
-- A row for each kind of transaction of a function and its cause, as `bluebridge log DIR --view traffic`
-- has: the time since the cause. Then a row for each kind of activity: its time from beginning to end.
-- Times are in microseconds; the 99th percentile is the least value that 99 % do not exceed.

DROP VIEW IF EXISTS bluebridge_response_times;
DROP VIEW IF EXISTS bluebridge_times;

CREATE VIEW bluebridge_times AS
SELECT
  above.name AS function_name,
  'transaction' AS sort,
  slice.category AS kind,
  EXTRACT_ARG(slice.arg_set_id, 'debug.cause') AS cause,
  EXTRACT_ARG(slice.arg_set_id, 'debug.since_cause_ns') / 1000.0 AS us,
  EXTRACT_ARG(slice.arg_set_id, 'debug.event') AS event
FROM slice
JOIN track ON slice.track_id = track.id
JOIN track AS above ON track.parent_id = above.id
WHERE EXTRACT_ARG(slice.arg_set_id, 'debug.since_cause_ns') IS NOT NULL
UNION ALL
SELECT
  above.name AS function_name,
  'activity' AS sort,
  slice.category AS kind,
  EXTRACT_ARG(slice.arg_set_id, 'debug.operation') AS cause,
  slice.dur / 1000.0 AS us,
  EXTRACT_ARG(slice.arg_set_id, 'debug.number') AS event
FROM slice
JOIN track ON slice.track_id = track.id
JOIN track AS above ON track.parent_id = above.id
WHERE EXTRACT_ARG(slice.arg_set_id, 'debug.operation') IS NOT NULL AND slice.dur > 0;

CREATE VIEW bluebridge_response_times AS
WITH ranked AS (
  SELECT
    *,
    COUNT(*) OVER same AS n,
    ROW_NUMBER() OVER (PARTITION BY function_name, sort, kind, cause ORDER BY us, event) AS place
  FROM bluebridge_times
  WINDOW same AS (PARTITION BY function_name, sort, kind, cause)
)
SELECT
  function_name,
  sort,
  kind,
  cause,
  n AS count,
  MIN(us) AS min_us,
  AVG(us) AS mean_us,
  MAX(us) AS max_us,
  MIN(CASE WHEN place >= 0.99 * n THEN us END) AS p99_us,
  MAX(CASE WHEN place = n THEN event END) AS slowest_event
FROM ranked
GROUP BY function_name, sort, kind, cause, n;

SELECT * FROM bluebridge_response_times ORDER BY sort, function_name, count DESC, kind, cause;
