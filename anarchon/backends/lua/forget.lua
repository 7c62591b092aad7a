-- forget: removes everything that is kept of the job, its history included.
--
-- ARGV
-- ANSWER  ok
redis.call('DEL', STATE, ENDED, EXPIRY, HISTORY, RECORDS)
return 'ok'
