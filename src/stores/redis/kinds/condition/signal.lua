-- Signals those who wait on a condition, the longest waiting first.
--
-- KEYS[1]  the lock
-- KEYS[2]  those who wait, by when they came, µs since 1970
-- KEYS[3]  when those who wait, and those who were signalled and have not asked since, have to be heard of, ms since 1970
-- ARGV[1]  the visitor whose hold has to stand
-- ARGV[2]  the amount: how many are to be signalled
-- ARGV[3]  the channels of those who wait, without `:visitor` behind them
-- ARGV[4]  the server time after which the request is refused, ms since 1970
-- ARGV[5]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {1, now, count}   so many were signalled
--         {2, now, holder}  the hold is gone; holder is whoever has the lock, '' for nobody and for one that is not told
--         {3, now}          too late, nothing was done
--
-- Keeps: nobody dead is counted. Needs no memory, so it works on a server that is full.

-- include holder_of.lua
-- include places.lua

-- include in_time.lua
-- include gone.lua
local has = pcall('HEXISTS', key, ARGV[1])
if has ~= 1 then
    return gone(has, '')
end
local count, most = 0, ARGV[2] + 0
while count < most and wake_first(KEYS[2], KEYS[3], ARGV[3], now) do
    count = count + 1
end
return {number, {1, now, count}}
