-- The waiters of a condition are in two sorted sets. In `waiting`, the score is the time of joining, µs. In `due`, the
-- score is the deadline of the waiter's next request, ms. A waiter that is only in `due` was signalled, and has sent no
-- request since then.

-- Signals the first living waiter, and removes dead waiters before it. Returns whether there was a living waiter.
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
            -- A queue entry has a lease of 10 s. A deadline further ahead shows that the server's clock was set back.
            -- The waiter may be dead, so the next waiter is signalled too.
            if ends - now <= 10000 then
                return true
            end
        end
        redis.call('ZREM', due, first)
    end
end
