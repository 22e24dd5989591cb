-- Takes a read-write lock to write, or enters it once more.
--
-- KEYS[1]  the lock: a hash of its mode, and of the visitors with their hold counts
-- KEYS[2]  the time key of the visitor, which it has if its thread reads inside
-- KEYS[3]  the notes on those who wait to write
-- ARGV[1]  the visitor
-- ARGV[2]  the lease, ms
-- ARGV[3]  the count that stands there, as far as the visitor knows; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  for how long the visitor is to count as waiting if it is refused, ms; 0 if it is not to be noted, -1 if it does not
--          come back, -2 if others who wait do not matter to it, either
-- ARGV[6]  the server time after which the request is refused, ms since 1970
-- ARGV[7]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as acquire.lua: a number granted, {0, now, ttl, holder} refused, {2, now, holder} gone, {3, now} too late,
--         {4, now, count} another count
--
-- Keeps: no hold is there without an end. A copy of the first request changes no count, and shortens nothing.

-- include sides.lua
-- include phases.lua

local number, expiry = ARGV[#ARGV] + 0, ARGV[6] + 0
local call, pcall, key, own, visitor, lease = redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local known, wanted, notes, waits = ARGV[3], ARGV[4], KEYS[3], ARGV[5] + 0
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > expiry then
    return {number, {3, now}}
end
local granted = number * 4194304 + math.min(expiry - now, 4194303)

-- When the visitor came, if it is noted.
local function came()
    local noted = waits >= 0 and pcall('HGET', notes, visitor)
    local begun = type(noted) == 'string' and string.match(noted, '^%d+')
    return begun and math.min(begun + 0, time[1] * 1000000 + time[2])
end

-- Refuses, and notes that the visitor waits.
local function refused(ttl, holder)
    if waits > 0 then
        local begun = came() or time[1] * 1000000 + time[2]
        pcall('HSET', notes, visitor, string.format('%.0f:%.0f', begun, now + waits))
        keep_notes(notes, 3 * waits)
    end
    return {number, {0, now, ttl, holder}}
end

local is_entered = known ~= '0'
if is_entered then
    local count = pcall('HGET', key, visitor)
    if type(count) == 'table' then
        return string.find(count.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or count
    elseif not count or is_over(key, own, visitor) then
        return {number, {2, now, not count and holder_of(key) or ''}}
    elseif count ~= known and count ~= wanted then
        return {number, {4, now, string.sub(count, 1, 32)}}
    end
    prolong(key, lease)
    call('HSET', key, visitor, wanted)
else
    local mode, flaw = mode_of(key)
    if flaw then
        return flaw
    elseif not mode then
        if waits >= -1 then
            -- By arrival, and, if it comes back, behind readers that were turned away.
            local writer, others = first_writer(notes, now, came())
            local rest = waits >= 0 and window_of(others, now) or 0
            if writer or rest > 0 then
                return refused(writer and 1000 or rest, string.sub(writer or '', 1, 128))
            end
        end
        call('HSET', key, 'mode', 'write', visitor, wanted)
        local expires = pcall('PEXPIRE', key, lease)
        if expires ~= 1 then
            -- A user without the right to the one may have the right to the other.
            if pcall('DEL', key) ~= 1 then
                pcall('HDEL', key, visitor)
                pcall('HDEL', key, 'mode')
            end
            return expires
        end
        if call('EXISTS', notes) == 1 then
            pcall('HINCRBY', notes, 'phase', 1)
            pcall('HDEL', notes, visitor)
        end
        return granted
    elseif call('HEXISTS', key, visitor) == 0 then
        return refused(call('PTTL', key), holder_of(key))
    end
end
if call('EXISTS', own) == 1 then
    lengthen(own, lease)
end
lengthen(key, lease)
return granted
