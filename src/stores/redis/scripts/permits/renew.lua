-- Renews the leases of many owners of permits at once.
--
-- KEYS[2i-1]            a semaphore
-- KEYS[2i]              the owners of its permits
-- ARGV[2i-1], ARGV[2i]  the visitor of KEYS[2i] and its lease, ms
-- ARGV[#ARGV-1]         the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]           the number of the request, which comes before the answer: {number, …}
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  done; the i-th owner was not renewed: what is 0 if it owns nothing any more
--
-- Keeps: only what is owned, of a semaphore that is there, is given a new end.

local number = ARGV[#ARGV] + 0
local call, pcall = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[#ARGV - 1] + 0 then
    return {number, {now, 0}}
end
local result = {now, 1}
for i = 1, #KEYS / 2 do
    local key, owners, visitor = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1]
    local has = pcall('ZSCORE', owners, visitor)
    local what
    if type(has) == 'table' then
        if not string.find(has.err, 'WRONGTYPE', 1, true) then
            return has
        end
        what = 'a key of another type'
    elseif not has or not call('GET', key) then
        what = 0
    end
    if what then
        result[#result + 1] = i
        result[#result + 1] = what
    else
        call('ZADD', owners, string.format('%.0f', now + ARGV[2 * i]), visitor)
    end
end
return {number, result}
