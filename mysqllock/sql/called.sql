-- Finds rows that signal a driver. Parameter: driver.
SELECT name FROM {table} WHERE called = ? LIMIT 100
