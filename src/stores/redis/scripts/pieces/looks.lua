-- A score that is a time, ms, has in its fraction, in 2048ths, when the member looked last, in tenths of a second from 1 to 2047; 0
-- if that is not known. What Redisson adds to scores, and takes off them, are whole numbers.

-- The score of a time whose member looks now.
local function time_of(score, now)
    return string.format('%.17g', math.floor(score) + (math.floor(now / 100) % 2047 + 1) / 2048)
end

-- For how long a member has not looked at least, ms, by its score; false if that is not known, or is of before the clock was set
-- back.
local function silence_of(score, now)
    local noted = score % 1 * 2048
    local silence = noted > 0 and (math.floor(now / 100) - noted + 1) % 2047
    return silence and silence < 1024 and (silence - 1) * 100
end

