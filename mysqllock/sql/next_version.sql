-- The next version of a row. It contains the time, so that a version that was rolled back is not
-- used again.
GREATEST(version + 1, {clock})
