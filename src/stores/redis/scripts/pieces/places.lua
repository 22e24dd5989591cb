-- Those who wait on a condition are in two sorted sets: `waiting`, by when they came, µs, and `due`, by when they have to be
-- heard of again, ms. One that is in the latter alone was signalled, and has not asked since.

-- Signals the one alive that has waited for longest, and takes the dead before it away. Returns whether there was one.
local function wake_first(waiting, due, channels, now)
    while true do
        local first = redis.call('ZRANGE', waiting, 0, 0)[1]
        if not first then
            return false
        end
        local ends = redis.call('ZSCORE', due, first)
        redis.call('ZREM', waiting, first)
        if ends and ends + 0 > now then
            redis.pcall('PUBLISH', channels .. ':' .. first, '0')
            -- A place lasts 10 s. An end farther ahead is of before the server's clock was set back: this one may be dead.
            if ends - now <= 10000 then
                return true
            end
        end
        redis.call('ZREM', due, first)
    end
end
