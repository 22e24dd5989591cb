-- Waiters of a condition are in two sorted sets: `waiting`, by the time of joining, µs, and `due`, by the deadline of their
-- next request, ms. A waiter that is only in `due` was signalled, and has sent no request since.

-- Signals the longest waiting living waiter, and removes dead ones before it. Returns whether there was one.
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
            -- A queue entry lasts 10 s. If its deadline is later, the server's clock was set back since, so this waiter may
            -- be dead.
            if ends - now <= 10000 then
                return true
            end
        end
        redis.call('ZREM', due, first)
    end
end
