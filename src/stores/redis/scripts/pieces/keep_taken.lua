-- Has the permits that are taken noted for as long as the semaphore lasts and a renewal takes, for its end may be put off or
-- lifted: without the notes all permits would be lost, and never come back.
local function keep_taken(taken, life, lease)
    if life > 0 then
        redis.pcall('PEXPIRE', taken, string.format('%.0f', life + math.min(lease, 86400000)))
    elseif life == -1 then
        local left = redis.pcall('PTTL', taken)
        if type(left) == 'number' and left >= 0 then
            redis.pcall('PEXPIRE', taken, 10000000000000)
        end
    end
end
