-- Makes the hold of one token that of another one of the same process.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token that gives its hold back
-- ARGV[2]  the token that is to have it
-- ARGV[3]  the lease of the latter, ms
-- ARGV[4]  the channel of unlock messages, which this kind of lock does not use
-- ARGV[5]  the server time after which the request is refused, ms since 1970
-- ARGV[6]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {1, now, -1}      done; whether others wait is not known
--         {2, now, holder}  the first one has no hold; holder is whoever has the lock, '' for nobody
--         {3, now}          too late, nothing was done
--
-- Keeps: the lock is free at no moment.

-- include in_time.lua
local holder = redis.pcall('GET', key)
if type(holder) == 'table' then
    return string.find(holder.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}}
        -- Another error is raised, for it then names the script.
        or call('GET', key)
elseif holder == ARGV[1] then
    call('SET', key, ARGV[2], 'PX', ARGV[3])
elseif holder ~= ARGV[2] then
    return {number, {2, now, string.sub(holder or '', 1, 64)}}
end
return {number, {1, now, -1}}
