-- What each site has earned so far, from topic to topic. Source and sink are in earned.toml.
SELECT site AS key, to_json(named_struct('site', site, 'clicks', clicks, 'earned', earned)) AS value
FROM (SELECT site, count(*) AS clicks, sum(price) AS earned FROM clicks GROUP BY site)
